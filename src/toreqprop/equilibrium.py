"""Where relaxation meets autograd: the library's only ``torch.autograd.Function``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from toreqprop.energies import Params, System, VectorField
from toreqprop.gradients import GradientEstimator, Problem, UnrolledGradient
from toreqprop.solution import State
from toreqprop.solvers import Hook, Solver, Tolerance, solve


@dataclass(frozen=True)
class Settings:
    """How an equilibrium is found and differentiated; everything but the tensors."""

    field: VectorField
    solver: Solver
    tolerance: Tolerance
    gradient: GradientEstimator
    report: Hook
    contraction: float | None = None


def equilibrium(settings: Settings, x: Tensor, params: Params) -> State:
    """The free equilibrium as a differentiable function of ``x`` and ``params``.

    Its backward runs the nudged phases of ``settings.gradient``. What is saved for it (inputs,
    parameters, drive, equilibrium) does not depend on how long the relaxation took.
    """
    if isinstance(settings.gradient, UnrolledGradient):
        return settings.gradient.trajectory(settings.field, x, params)
    return _Equilibrium.apply(settings, x, *params)


class _Equilibrium(torch.autograd.Function):
    """Forward: free phase. Backward: nudged phases. No graph through either."""

    @staticmethod
    def forward(ctx: FunctionCtx, settings: Settings, x: Tensor, *params: Tensor) -> State:
        system = System.bind(settings.field, x, params, settings.contraction)
        solution = solve(system, system.initial_state(), settings.solver, settings.tolerance)
        settings.report("free", solution)
        ctx.settings = settings  # type: ignore[attr-defined]
        ctx.counts = (len(params), len(system.drive))  # type: ignore[attr-defined]
        ctx.save_for_backward(x, *params, *system.drive, *solution.state)
        return solution.state

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *cotangent: Tensor) -> tuple[Tensor | None, ...]:
        settings: Settings = ctx.settings
        x, *rest = ctx.saved_tensors
        n_params, n_drive = ctx.counts
        params = tuple(rest[:n_params])
        drive = tuple(rest[n_params : n_params + n_drive])
        free = tuple(rest[n_params + n_drive :])
        system = System(settings.field, x, params, drive, contraction=settings.contraction)
        problem = Problem(
            system,
            settings.solver,
            settings.tolerance,
            wants=tuple(ctx.needs_input_grad[1:]),
            report=settings.report,
        )
        return (None, *settings.gradient.backward(problem, free, cotangent))
