"""Before training: which nudge a chip needs, how wrong its gradient will be, and what limits it.

A linear theory of the settled network, from the device's own figures. With centred nudges ±β the
relative error of the gradient is, over the draws of the noise,

    error² = bias(β)² + (noise/β)² + noise₀² + resolution(β)² + (offset/β)²

* bias(β): that of noiseless phases of the same length: O(β²), what has not settled, and what
  weights that differ between the two directions leave at β → 0.
* noise: readings ``s + σξ`` go back into the network, ``δ ← J(δ + σξ)``, and are averaged; the
  difference of two phases turns into a gradient through the local rule, divided by β. noise₀ is
  what does not: the loss seen at a noisy reading, and the mean of both phases.
* resolution(β): a converter with step Δ sees a difference D as ``Δ·⌊D/Δ⌋`` or one step more:
  variance ``Δ²·φ(1 − φ)`` with φ the fractional part of D/Δ. Noise of rms σ before the converter is
  a dither: it leaves ``exp(−4π²σ²/Δ²)`` of that, and adds the rest of Δ²/12 to what averages out.
* offset: what the second phase has and the first has not, passed through ``(1 − J)⁻¹``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop import checks
from toreqprop.energies.devices import Device
from toreqprop.gradients import CenteredEP
from toreqprop.hardware.limits import (
    Limit,
    Loss,
    at_rest,
    check_chip,
    exact_gradient,
    flat,
    gradient,
)
from toreqprop.hardware.response import Response
from toreqprop.models import OnChip
from toreqprop.solution import State
from toreqprop.solvers.device_phases import drifted, phase_offsets

BETAS = tuple(0.002 * 10 ** (k / 12) for k in range(37))
"""Nudges to choose from, 0.002 to 2."""

PROBES = 4
"""Draws of the linear theory's noise; a gradient's norm sums over so many that few are enough."""

COARSE_PROBES = 2
"""The same for converters, which are looked at for every β."""

MOST_BIAS, MOST_NOISE = 0.7, 4.0
"""Conventions, not measurements: a systematic error of this size turns the gradient by up to 45
degrees; a random one averages out over some steps of the optimizer."""


@dataclass(frozen=True)
class Terms:
    """Parts of the relative gradient error at one β; the total is the root of their squares."""

    noise: float
    resolution: float
    phase_offset: float
    asymmetry: float
    settling: float
    beta: float

    @property
    def error(self) -> float:
        return math.sqrt(sum(v * v for v in asdict(self).values()))

    @property
    def systematic(self) -> float:
        """What does not average out over steps."""
        return math.sqrt(self.error**2 - self.noise**2)

    @property
    def limits(self) -> list[Limit]:
        """All that are not zero, the largest part first."""
        parts = asdict(self)
        names = sorted(parts, key=lambda name: parts[name], reverse=True)
        return [Limit[name.upper()] for name in names if parts[name]]

    @property
    def limit(self) -> Limit:
        """The largest part."""
        parts = asdict(self)
        return Limit[max(parts, key=lambda name: parts[name]).upper()]


@dataclass(frozen=True)
class Budget:
    """What a chip's gradient will be like: for every β of `BETAS`, and for the best of them."""

    beta: float
    terms: Terms
    curve: tuple[tuple[float, Terms], ...]

    @property
    def error(self) -> float:
        """Relative error of one gradient at the best β, ``rms‖ĝ − g‖/‖g‖``."""
        return self.terms.error

    @property
    def limit(self) -> Limit:
        return self.terms.limit

    @property
    def learns(self) -> bool:
        """Whether training can be expected to work: see `MOST_BIAS` and `MOST_NOISE`."""
        return self.terms.systematic <= MOST_BIAS and self.terms.noise <= MOST_NOISE

    def at(self, beta: float) -> Terms:
        """The terms at any β, from the nearest of the curve."""
        checks.number("beta", beta, 0, above=True)
        return min(self.curve, key=lambda point: abs(math.log(point[0] / beta)))[1]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "beta": self.beta,
            "error": self.error,
            "limit": self.limit.name,
            "learns": self.learns,
            "terms": asdict(self.terms),
            "curve": [{"beta": b, "error": t.error} for b, t in self.curve],
        }

    def __str__(self) -> str:
        verdict = "should learn" if self.learns else "is not expected to learn"
        limit = self.limit.at_the_best_nudge
        if self.limit is Limit.BETA and len(self.terms.limits) > 1:
            limit += f", and a weaker one by {self.terms.limits[1].at_the_best_nudge}"
        return (
            f"This chip {verdict}: best beta {self.beta:.2g}, relative error of one gradient "
            f"{self.error:.2g} ({self.terms.systematic:.2g} of it systematic), limited by {limit}."
        )


def budget(
    model: OnChip, x: Tensor, y: Tensor, *, loss: Loss = F.cross_entropy, chips: int = 1
) -> Budget:
    """Predict the best β of `CenteredEP` on this chip and the gradient's error there.

    ``chips`` averages (the squares) over so many chips of the same production. With
    ``CenteredEP(swap=True)`` as the model's estimator, offsets between phases count as noise.

    Raises:
        InvalidInputError: the model is not on a chip, or has nothing to learn from the batch.
    """
    check_chip(model, x, y, loss)
    checks.whole_number("chips", chips, 1)
    curves = [
        _curve(OnChip(device, model.network), model, x, y, loss)
        for device in model.device.chips(chips)
    ]
    curve = tuple((beta, _mean([points[k] for points in curves])) for k, beta in enumerate(BETAS))
    best = min(curve, key=lambda point: point[1].error)
    return Budget(best[0], best[1], curve)


def _mean(parts: list[Terms]) -> Terms:
    names = asdict(parts[0])
    squares = {n: sum(getattr(p, n) ** 2 for p in parts) / len(parts) for n in names}
    return Terms(**{n: math.sqrt(v) for n, v in squares.items()})


def _curve(chip: OnChip, like: OnChip, x: Tensor, y: Tensor, loss: Loss) -> list[Terms]:
    """The terms of one chip at every β of `BETAS`."""
    chip.gradient = like.gradient
    chip.train(like.training)
    device = chip.device
    wide = x.double() if x.is_floating_point() else x
    rest = at_rest(chip)
    exact = flat(exact_gradient(chip, x, y, loss))
    size = float(exact.norm())
    response = Response.of(rest, wide, y, loss)
    shift = response.shift()
    generator = torch.Generator().manual_seed(0)
    moved = Moved.of(response, device, generator)
    fixed, per_beta = _noise(response, shift, moved, size)
    offset = float(response.gradient_of(response.state, _offset(response, device)).norm()) / size
    bias, asymmetry, settling = _bias(rest, device, wide, y, loss, exact)
    swapped = isinstance(like.gradient, CenteredEP) and like.gradient.swap
    found = []
    for beta in BETAS:
        noise = fixed**2 + (per_beta / beta) ** 2
        apart = offset / beta
        if swapped:
            noise, apart = noise + apart**2, 0.0
        coarse = _resolution(response, device, shift, beta, generator) / (beta * size)
        own = math.sqrt(max(0.0, bias(beta) ** 2 - asymmetry**2 - settling**2))
        found.append(Terms(math.sqrt(noise), coarse, apart, asymmetry, settling, own))
    return found


@dataclass(frozen=True)
class Moved:
    """Draws of what noise does to the readings of a phase: one list for each of three phases."""

    phases: tuple[list[State], list[State], list[State]]

    @staticmethod
    def of(response: Response, device: Device, generator: torch.Generator) -> Moved:
        return Moved(
            tuple(  # type: ignore[arg-type]
                [_fluctuation(response, device, generator) for _ in range(PROBES)] for _ in range(3)
            )
        )


def dithered(device: Device) -> tuple[float, float]:
    """Variance that a converter adds to every reading, and the part of its error that stays."""
    if device.states is None:
        return 0.0, 0.0
    step, rms = device.states.step, math.hypot(device.read_noise, device.thermal_noise)
    kept = math.exp(-4 * (math.pi * rms / step) ** 2)
    return step**2 / 12 * (1 - kept), kept


def _fluctuation(response: Response, device: Device, generator: torch.Generator) -> State:
    """The mean of a phase's readings less the equilibrium, one draw of the linear theory."""
    rms = math.sqrt(device.read_noise**2 + dithered(device)[0])
    zero = tuple(torch.zeros_like(s) for s in response.state)
    if not (rms or device.thermal_noise):
        return zero
    rho = device.follow
    heat = [device.thermal_noise * response.system.field.temperature(i) for i in range(len(zero))]
    heat = [h * math.sqrt(1 - rho * rho) for h in heat]
    state, total = zero, zero
    held = zero  # of preactivations, as displacements σ'·v
    for step in range(device.settle + device.average):
        seen = tuple(s + rms * _white(s, generator) for s in state)
        if step >= device.settle:
            total = tuple(t + r for t, r in zip(total, seen, strict=True))
        image = response.push(seen)
        if device.thermal_noise:
            kick = response.force(
                tuple(h * _white(s, generator) for h, s in zip(heat, zero, strict=True))
            )
        else:
            kick = zero
        held = tuple(rho * h + (1 - rho) * i + k for h, i, k in zip(held, image, kick, strict=True))
        state = held
    return tuple(t / device.average for t in total)


def _noise(response: Response, shift: State, moved: Moved, size: float) -> tuple[float, float]:
    """Relative errors by noise: what does not depend on β, and what falls as 1/β."""
    fixed = falling = 0.0
    for free, up, down in zip(*moved.phases, strict=True):
        half = tuple(0.5 * (a - b) for a, b in zip(up, down, strict=True))
        mean = tuple(0.5 * (a + b) for a, b in zip(up, down, strict=True))
        falling += float(response.gradient_of(response.state, half).norm()) ** 2
        other = response.of_cotangent(response.cotangent_change(free))
        other = other + response.gradient_of(mean, shift) - response.gradient_of(_none(mean), shift)
        fixed += float(other.norm()) ** 2
    return math.sqrt(fixed / PROBES) / size, math.sqrt(falling / PROBES) / size


def _none(state: State) -> State:
    return tuple(torch.zeros_like(s) for s in state)


def _offset(response: Response, device: Device) -> State:
    """Half of what the phases differ by beside the nudge."""
    first, second = (_disturbed(response, device, phase) for phase in (1, 2))
    return response.settled(tuple(0.5 * (a - b) for a, b in zip(first, second, strict=True)))


@torch.no_grad()
def _disturbed(response: Response, device: Device, phase: int) -> State:
    """One step from the free equilibrium with the offsets and the drift of a phase."""
    system = drifted(response.system, device.decay(phase))
    u = system.preactivation(response.state)
    offsets = phase_offsets(system, device, response.state, phase)
    if offsets is not None:
        u = tuple(a + o for a, o in zip(u, offsets, strict=True))
    return system.activate(u)


def _resolution(
    response: Response, device: Device, shift: State, beta: float, generator: torch.Generator
) -> float:
    """Norm of the gradient's error by the converters, times β."""
    kept = dithered(device)[1]
    if device.states is None or kept < 1e-12:
        return 0.0
    step, total = device.states.step, 0.0
    for _ in range(COARSE_PROBES):
        error = []
        for s in shift:
            apart = 2 * beta * s.abs() / step
            part = apart - apart.floor()
            rms = 0.5 * step * (kept * part * (1 - part)).sqrt()
            error.append(rms * _white(s, generator))
        found = response.gradient_of(response.state, response.settled(tuple(error)))
        total += float(found.norm()) ** 2
    return math.sqrt(total / COARSE_PROBES)


def _bias(
    rest: OnChip, device: Device, x: Tensor, y: Tensor, loss: Loss, exact: Tensor
) -> tuple[Callable[[float], float], float, float]:
    """bias(β) of noiseless phases, and its parts as β → 0: asymmetry, and what has not settled."""
    chip = rest
    if device.moving:
        free = device.settle if device.settle_free is None else device.settle_free
        quiet = replace(
            device, states=None, read_noise=0.0, thermal_noise=0.0, phase_offset=0.0, drift=0.0,
            average=1, settle_free=free,
        )  # fmt: skip
        chip = OnChip(quiet, rest.network)
    size = float(exact.norm())

    def error(model: OnChip, beta: float) -> float:
        model.gradient = CenteredEP(beta)
        return float((flat(gradient(model, x, y, loss)) - exact).norm()) / size

    asymmetry = error(rest, WEAK) if device.up_down else 0.0
    settling = math.sqrt(max(0.0, error(chip, WEAK) ** 2 - asymmetry**2))
    grid = [BETAS[0], 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, BETAS[-1]]
    values = [max(error(chip, beta), 1e-12) for beta in grid]

    def bias(beta: float) -> float:
        k = max(i for i in range(len(grid) - 1) if grid[i] <= beta or i == 0)
        part = math.log(beta / grid[k]) / math.log(grid[k + 1] / grid[k])
        return math.exp((1 - part) * math.log(values[k]) + part * math.log(values[k + 1]))

    return bias, asymmetry, settling


WEAK = 1e-3
"""A nudge whose own bias, O(β²), does not count."""


def _white(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=like.dtype)
