"""The free and the nudged relaxations of a model, recorded step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.energies import Energy, LinearNudge, Opposed, System
from toreqprop.gradients import VectorFieldEP
from toreqprop.gradients.base import normalise
from toreqprop.models import EquilibriumModel
from toreqprop.solution import Solution, State
from toreqprop.solvers import Trace, relax, relax_pair

Loss = Callable[[Tensor, Tensor], Tensor]

DEFAULT_BETA = 0.1
"""The nudge that is drawn for an estimator without one, such as an oracle."""


@dataclass(frozen=True)
class PhaseTrace:
    """One phase: its name ("free", "nudged +β", "nudged −β"), nudge, record and end."""

    name: str
    beta: float
    trace: Trace
    solution: Solution


def trace_phases(
    model: EquilibriumModel,
    x: Tensor,
    y: Tensor,
    *,
    loss: Loss = F.cross_entropy,
    tol: float | None = None,
    keep_states: bool = False,
    keep_energies: bool = False,
) -> tuple[PhaseTrace, ...]:
    """Relax freely, then under the linear nudges of the model's estimator, recording each step.

    ``tol`` defaults to the model's own; energies are kept only where the model has one. Both nudged
    phases are relaxed together, as in training; a residual is that of the pair.
    """
    model.check_input(x)
    solver = model.solver.limited(tol=tol)
    energies = keep_energies and isinstance(model.field, Energy)
    with torch.no_grad():
        system = System.bind(model.field, model.field_input(x), model.system_parameters())
    trace = Trace(keep_states=keep_states, keep_energies=energies)
    free = relax(system, solver, trace=trace)
    found = [PhaseTrace("free", 0.0, trace, free)]
    leaves = tuple(s.detach().requires_grad_() for s in free.state)
    with torch.enable_grad():
        value = loss(model.readout_from(leaves), y)
    cotangent = torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)
    direction, _ = normalise(cotangent)
    one, two = nudges(model)
    nudge = Opposed(LinearNudge(direction, one), LinearNudge(direction, two) if two else None)
    if isinstance(model.gradient, VectorFieldEP) and not isinstance(model.field, Energy):
        nudge = model.gradient.opposed(system, free.state, direction)
    pair = Trace(keep_states=True)
    solution = relax_pair(system, nudge, solver, free.state, trace=pair)
    for sign, beta in ((1, one), (-1, two)):
        if beta == 0:
            continue
        states = [_one(state, sign) for state in pair.states]
        trace = Trace(pair.residuals, states if keep_states else [])
        if energies:
            nudged = system.nudged(LinearNudge(direction, beta))
            with torch.no_grad():
                trace.energies = [nudged.energy(state) for state in states]
        reached = solution.up if sign > 0 else solution.down
        ended = replace(solution, state=reached, shift=())
        found.append(PhaseTrace("nudged +β" if beta > 0 else "nudged −β", beta, trace, ended))
    return tuple(found)


def in_double(x: Tensor) -> Tensor:
    """In float64, but for tokens."""
    return x.double() if x.is_floating_point() else x


def _one(state: State, sign: int) -> State:
    """One of two phases from centers and shifts."""
    count = len(state) // 2
    return tuple(c + sign * d for c, d in zip(state[:count], state[count:], strict=True))


def nudges(model: EquilibriumModel) -> tuple[float, float]:
    """The strengths of nudge the model's estimator uses, zero for the free phase."""
    if model.gradient.betas is not None:
        return model.gradient.betas
    beta = float(getattr(model.gradient, "beta", DEFAULT_BETA))
    return beta, -beta
