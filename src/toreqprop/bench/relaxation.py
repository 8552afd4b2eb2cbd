"""Residual against step of a trained model's relaxations, in the free and the nudged phase."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.energies import LinearNudge, System
from toreqprop.gradients.base import normalise
from toreqprop.models import LoopedMLP
from toreqprop.solvers import Trace, solve

SAMPLES = 256
FINE = 1e-6
"""Tolerance of the curves: finer than in training, so that they show the rate of convergence."""


def relaxation_curves(model: LoopedMLP, x: Tensor, y: Tensor) -> dict[str, Any]:
    """The worst and the median residual at each step, over the first test samples.

    Free residuals are relative to the activity, nudged ones to the first nudged residual: what
    each phase's stopping rule looks at.
    """
    x, y = x[:SAMPLES], y[:SAMPLES]
    tolerance = replace(model.tolerance, tol=FINE)
    with torch.no_grad():
        system = System.bind(model.field, x, model.system_parameters())
        free_trace, nudged_trace = Trace(), Trace()
        free = solve(system, system.initial_state(), model.solver, tolerance, trace=free_trace)
    hidden = free.state[0].detach().requires_grad_()
    loss = F.cross_entropy(model.readout_from((hidden,)), y)
    direction, _ = normalise(torch.autograd.grad(loss, (hidden,)))
    beta = getattr(model.gradient, "beta", 0.1)
    solve(
        system.nudged(LinearNudge(direction, beta)),
        free.state,
        model.solver,
        tolerance,
        relative_to_first=True,
        trace=nudged_trace,
    )
    return {"samples": len(x), "free": _curve(free_trace), "nudged": _curve(nudged_trace)}


def _curve(trace: Trace) -> dict[str, list[float]]:
    return {
        "worst": [float(r.max()) for r in trace.residuals],
        "median": [float(r.median()) for r in trace.residuals],
    }
