"""How a resistive network settles in time, in PyTorch: capacitors at nodes, poles of amplifiers.

    C·dv/dt = −F(v, w) − nudge,    τ·dw/dt = v − w,

with F the current that leaves a node, and w what an amplifier of time constant τ has seen of the
voltage it amplifies; without τ it sees the voltage itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.energies import System
from toreqprop.energies.circuits import Wired
from toreqprop.models import ResistiveMLP
from toreqprop.solution import State


@dataclass(frozen=True)
class Settling:
    """Voltages over time.

    Attributes:
        times: (points,) seconds.
        nodes: (points, batch, n) volts per layer.
        unit: seconds, RC of a typical node.
    """

    times: Tensor
    nodes: tuple[Tensor, ...]
    unit: float


@torch.no_grad()
def settle(model: ResistiveMLP, x: Tensor, span: float = 30.0, step: float = 0.01) -> Settling:
    """The free circuit from 0 V, by Runge and Kutta's fourth-order method.

    Args:
        model: a resistive network; use double precision.
        x: (batch, inputs).
        span: how long, in units of RC.
        step: of the integration, in units of RC.
    """
    checks.instance("model", model, ResistiveMLP, "only these have capacitors")
    model.check_input(x)
    checks.number("step", step, 0, above=True, typical="0.01")
    checks.number("span", span, step, above=True, typical="30")
    field, params = model.field, model.system_parameters()
    wired = field.wired(System.bind(field, x, params).drive, params)
    own = [g.sum(1) / field.scale for g in params[: wired.depth]]
    unit = time_constant(model)
    rate, slow = unit * field.scale / model.capacitance, model.faults.amplifier_time / unit
    hidden = wired.depth - 1

    def slope(state: State) -> State:
        v, seen = state[: wired.depth], state[wired.depth :]
        moves = [-rate * f for f in _currents(wired, own, v, seen or v[:hidden])]
        return (*moves, *((a - b) / slow for a, b in zip(v, seen, strict=False)))

    state: State = tuple(x.new_zeros(len(x), n) for n in model.sizes[1:])
    if slow:
        state = (*state, *(torch.zeros_like(v) for v in state[:hidden]))
    kept = [state]
    for _ in range(round(span / step)):
        state = _runge_kutta(slope, state, step)
        kept.append(state)
    nodes = [torch.stack(layer) for layer in zip(*kept, strict=True)]
    times = step * unit * torch.arange(len(kept), dtype=x.dtype)
    return Settling(times, tuple(nodes[: wired.depth]), unit)


def _runge_kutta(slope: Callable[[State], State], state: State, step: float) -> State:
    def ahead(move: State, by: float) -> State:
        return tuple(s + by * m for s, m in zip(state, move, strict=True))

    first = slope(state)
    second = slope(ahead(first, 0.5 * step))
    third = slope(ahead(second, 0.5 * step))
    fourth = slope(ahead(third, step))
    parts = zip(first, second, third, fourth, strict=True)
    return ahead(tuple(a + 2 * b + 2 * c + d for a, b, c, d in parts), step / 6)


def time_constant(model: ResistiveMLP) -> float:
    """C over the mean total conductance of a node's own crossbar, as netlists count it."""
    depth = model.network.depth
    with torch.no_grad():
        totals = torch.cat([g.sum(1) for g in model.system_parameters()[:depth]])
    return model.capacitance / float(totals.double().mean())


def _currents(wired: Wired, own: list[Tensor], v: State, sensed: State) -> State:
    """Current that leaves each node when amplifiers see ``sensed``.

    What an amplifier returns of the current drawn from it goes with the voltage it puts out.
    """
    found = []
    for layer, node in enumerate(v):
        current = own[layer] * node - wired.source[layer]
        if layer > 0:
            below = sensed[layer - 1] * wired.rising[layer - 1]
            current = current - below @ wired.coupling[layer - 1].mT
        if layer + 1 < wired.depth:
            current = current + (wired.total[layer] - own[layer]) * sensed[layer]
            current = current - (v[layer + 1] @ wired.coupling[layer]) * wired.falling[layer]
            current = current + wired.pairs[layer].law(node)[0]
        found.append(current)
    return tuple(found)
