"""Phases as a chip runs them: one after the other, for a given time, each read with its faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from toreqprop.energies.devices import Device, DeviceField
from toreqprop.energies.system import PairSystem, System, layer_norms
from toreqprop.errors import UnsupportedModelError
from toreqprop.private_generator import noise
from toreqprop.solution import Solution, State, Status
from toreqprop.solvers.base import Dynamics, Solver, Trace, solve


@dataclass(frozen=True, kw_only=True)
class DevicePhases(Solver):
    """``r = q(s + ε)``, ``v ← ρ·v + (1 − ρ)·(u(r) + k·o) + thermal``, ``s = σ(v)``, in phase k.

    All neurons at once, `Device.settle` times; then the mean of `Device.average` readings r is what
    anyone knows of the phase. The free phase is phase 0, the nudged ones 1 and 2, from the free
    reading, with the weights as they have drifted by then. The device is the one of the system's
    `DeviceField`; ``tol`` and ``max_steps`` are of no use here.
    """

    def step(self, system: Dynamics, state: State, image: State, memory: Any) -> tuple[State, Any]:
        return image, None

    def solve(
        self,
        system: Dynamics,
        start: State,
        *,
        trace: Trace | None = None,
        remember: bool = False,
    ) -> Solution:
        if not isinstance(system, System | PairSystem):
            return solve(system, start, self, trace=trace, remember=remember)
        if start[0].is_complex():
            raise UnsupportedModelError("A chip has no complex states: use gradient=CenteredEP().")
        with torch.no_grad():
            if isinstance(system, System):
                # A single nudged phase, as the classical algorithm runs it, follows the free one.
                return run_phase(system, start, 0 if system.nudge is None else 1, trace)
            return _both(system, start, trace)


def _both(system: PairSystem, start: State, trace: Trace | None) -> Solution:
    """Both nudged phases, in the order in which the nudges are given."""
    free, nudges = start[: len(start) // 2], system.nudge
    if nudges.asymmetry is not None:
        raise UnsupportedModelError(
            "A chip cannot feel the correction of a vector field: use gradient=CenteredEP()."
        )
    first = run_phase(system.system.nudged(nudges.up), free, 1, trace)
    if nudges.down is None:
        second = replace(first, state=free, residual=torch.zeros_like(first.residual), steps=0)
    else:
        second = run_phase(system.system.nudged(nudges.down), free, 2, trace)
    pairs = list(zip(first.state, second.state, strict=True))
    means = tuple(0.5 * (a + b) for a, b in pairs)
    halves = tuple(0.5 * (a - b) for a, b in pairs)
    residual = torch.maximum(first.residual, second.residual)
    worst = first if not first.converged else second
    return Solution(
        (*means, *halves), max(first.steps, second.steps), residual, worst.status, layer=worst.layer
    )


def run_phase(system: System, start: State, phase: int, trace: Trace | None = None) -> Solution:
    """One phase of a chip from ``start``: settle, then the mean of its readings."""
    chip = device_of(system)
    system = drifted(system, chip.decay(phase) if phase else 1.0)
    offsets = phase_offsets(system, chip, start, phase)
    read, shake = reading(chip), _shaking(chip)
    settle = chip.settle if phase or chip.settle_free is None else chip.settle_free
    rho = chip.follow
    held = system.deactivate(start) if rho else None
    state, total = start, tuple(torch.zeros_like(s) for s in start)
    last = seen = read(state)
    for step in range(settle + chip.average):
        seen, last = (seen if step == 0 else read(state)), seen
        if step >= settle:
            total = tuple(t + r for t, r in zip(total, seen, strict=True))
        u = system.preactivation(seen)
        if offsets is not None:
            u = tuple(a + o for a, o in zip(u, offsets, strict=True))
        if held is not None:
            u = tuple(rho * h + (1 - rho) * a for h, a in zip(held, u, strict=True))
        if shake is not None:
            u = shake(system, u)
        held = u if rho else None
        if trace is not None:
            gap = _relative(tuple(a - b for a, b in zip(seen, last, strict=True)), seen)
            trace.record(system, state, seen, gap)
        state = system.activate(u)
    mean = tuple(t / chip.average for t in total)
    residual = _relative(tuple(a - b for a, b in zip(seen, last, strict=True)), seen)
    finite = all(bool(torch.isfinite(m).all()) for m in mean)
    status = Status.MEASURED if finite else Status.DIVERGED
    return Solution(mean, settle + chip.average, residual, status, layer=None if finite else 0)


def device_of(system: System) -> Device:
    """The device a system runs on."""
    if not isinstance(system.field, DeviceField):
        raise UnsupportedModelError(
            "DevicePhases runs what is on a chip: use toreqprop.hardware.on(device, model)."
        )
    return system.field.device


def drifted(system: System, factor: float) -> System:
    """The system with every weight times ``factor``; biases do not drift."""
    if factor == 1.0:
        return system
    params = tuple(p * factor if p.dim() > 1 else p for p in system.params)
    return replace(system, params=params, drive=system.field.prepare(system.x, params))


def phase_offsets(system: System, chip: Device, like: State, phase: int) -> State | None:
    """What phase k adds to the preactivations, in their scale: ``k·t_l·phase_offset·z``."""
    if not (phase and chip.phase_offset):
        return None
    return tuple(
        (
            phase
            * chip.phase_offset
            * system.field.temperature(layer)
            * chip.normal("phase", layer, tuple(s.shape[1:]))
        ).to(s)
        for layer, s in enumerate(like)
    )


def reading(chip: Device) -> Callable[[State], State]:
    """What is read of a state: with noise, then converted."""

    def read(state: State) -> State:
        if chip.read_noise:
            state = tuple(s + chip.read_noise * _white(s) for s in state)
        return state if chip.states is None else tuple(map(chip.states, state))

    return read


def _shaking(chip: Device) -> Callable[[System, State], State] | None:
    """Thermal noise on preactivations, in their scale."""
    if not chip.thermal_noise:
        return None
    rms = chip.thermal_noise * (1 - chip.follow**2) ** 0.5

    def shake(system: System, u: State) -> State:
        heat = [rms * system.field.temperature(layer) for layer in range(len(u))]
        return tuple(a + h * _white(a) for a, h in zip(u, heat, strict=True))

    return shake


def _white(like: Tensor) -> Tensor:
    drawn = torch.randn(like.shape, generator=noise(), dtype=like.dtype)
    return drawn.to(like.device)


def _relative(gap: State, image: State) -> Tensor:
    """(batch,) the largest over the layers of the last change, relative to the layer's size."""
    sizes = layer_norms(image).clamp_min(torch.finfo(torch.float64).tiny)
    return (layer_norms(gap) / sizes).amax(1)
