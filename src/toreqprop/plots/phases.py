"""The free and the nudged relaxations of a model, recorded step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.energies import AsymmetryCorrection, Energy, LinearNudge, Nudge, System
from toreqprop.gradients.base import normalise
from toreqprop.gradients.vector_field import jacobian_asymmetry
from toreqprop.models import EquilibriumModel
from toreqprop.solution import Solution, State
from toreqprop.solvers import Trace, solve

Loss = Callable[[Tensor, Tensor], Tensor]

DEFAULT_BETA = 0.1
"""The nudge that is drawn for an estimator without one, such as an oracle."""


@dataclass(frozen=True)
class PhaseTrace:
    """One relaxation: its name ("free", "nudged +β", "nudged −β"), nudge, record and end."""

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
    """Relax freely, then under the linear nudge at every β of the model's estimator.

    Nudged phases start at the free equilibrium; their residuals are relative to their first one.
    ``tol`` defaults to the model's own; energies are kept only where the model has one.
    """
    model.check_input(x)
    tolerance = model.tolerance if tol is None else replace(model.tolerance, tol=tol)
    energies = keep_energies and isinstance(model.field, Energy)
    with torch.no_grad():
        system = System.bind(model.field, x, model.system_parameters())
        trace = Trace(keep_states=keep_states, keep_energies=energies)
        free = solve(system, system.initial_state(), model.solver, tolerance, trace=trace)
    found = [PhaseTrace("free", 0.0, trace, free)]
    leaves = tuple(s.detach().requires_grad_() for s in free.state)
    value = loss(model.readout_from(leaves), y)
    cotangent = torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True)
    direction, _ = normalise(cotangent)
    for beta in nudges(model):
        nudged = system.nudged(_nudge(model, system, free.state, direction, beta))
        trace = Trace(keep_states=keep_states, keep_energies=energies)
        solution = solve(
            nudged, free.state, model.solver, tolerance, relative_to_first=True, trace=trace
        )
        name = "nudged +β" if beta > 0 else "nudged −β"
        found.append(PhaseTrace(name, beta, trace, solution))
    return tuple(found)


def nudges(model: EquilibriumModel) -> tuple[float, ...]:
    """The strengths of nudge the model's estimator uses, the free phase apart."""
    if model.gradient.betas is not None:
        return tuple(beta for beta in model.gradient.betas if beta != 0)
    beta = float(getattr(model.gradient, "beta", DEFAULT_BETA))
    return beta, -beta


def _nudge(
    model: EquilibriumModel, system: System, free: State, direction: State, beta: float
) -> Nudge:
    linear = LinearNudge(direction, beta)
    if getattr(model.gradient, "correction", False) and not isinstance(model.field, Energy):
        return AsymmetryCorrection(linear, free, jacobian_asymmetry(system, free))
    return linear
