"""Where relaxation meets autograd: the one Function whose backward is a nudged phase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from toreqprop.energies import DenseEnergy, Gradients, Params, System, Tanh, VectorField
from toreqprop.gradients import GradientEstimator, Problem, UnrolledGradient
from toreqprop.kernels import Kernel, Limits, get_kernel, phases
from toreqprop.solution import State
from toreqprop.solvers import FixedPoint, Hook, Solver, Tolerance, solve


@dataclass(frozen=True)
class Settings:
    """How an equilibrium is found and differentiated; everything but the tensors.

    ``kernel`` names a faster path for the case it covers (see `_covering_kernel`); None is the
    general path for every case.
    """

    field: VectorField
    solver: Solver
    tolerance: Tolerance
    gradient: GradientEstimator
    report: Hook
    contraction: float | None = None
    kernel: str | None = None

    @property
    def limits(self) -> Limits:
        """When a kernel's relaxation stops."""
        return Limits(self.tolerance.tol, self.tolerance.max_steps, self.contraction)


def equilibrium(settings: Settings, x: Tensor, params: Params) -> State:
    """The free equilibrium as a differentiable function of ``x`` and ``params``.

    Its backward runs the nudged phases of ``settings.gradient``. What is saved for it (inputs,
    parameters, drive, equilibrium) does not depend on how long the relaxation took.
    """
    if isinstance(settings.gradient, UnrolledGradient):
        return settings.gradient.trajectory(settings.field, x, params)
    return _Equilibrium.apply(settings, x, *params)


def _covering_kernel(settings: Settings, x: Tensor) -> Kernel | None:
    """The kernel, where the case is its own: one dense tanh layer, plain iteration, two phases."""
    betas = settings.gradient.betas
    if (
        settings.kernel is None
        or betas is None
        or betas[1] not in (-betas[0], 0.0)
        or settings.field != _KERNEL_FIELD
        or settings.solver != _KERNEL_SOLVER
        or not x.is_cpu
        or x.dtype not in (torch.float32, torch.float64)
    ):
        return None
    return get_kernel(settings.kernel)


_KERNEL_FIELD = DenseEnergy(Tanh())
_KERNEL_SOLVER = FixedPoint()


class _Equilibrium(torch.autograd.Function):
    """Forward: free phase. Backward: nudged phases. No graph through either."""

    @staticmethod
    def forward(ctx: Any, settings: Settings, x: Tensor, *params: Tensor) -> State:
        ctx.settings, ctx.kernel = settings, _covering_kernel(settings, x)
        if ctx.kernel is not None:
            return _forward_by_kernel(ctx, x, params)
        system = System.bind(settings.field, x, params, settings.contraction)
        solution = solve(system, system.initial_state(), settings.solver, settings.tolerance)
        settings.report("free", solution)
        ctx.counts = (len(params), len(system.drive))
        ctx.save_for_backward(x, *params, *system.drive, *solution.state)
        return solution.state

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *cotangent: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.kernel is not None:
            return (None, *_backward_by_kernel(ctx, cotangent[0]))
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


def _forward_by_kernel(ctx: Any, x: Tensor, params: Params) -> State:
    weight_in, bias, weight = params
    drive = F.linear(x, weight_in, bias)
    keep = any(ctx.needs_input_grad)
    free = phases.free_phase(ctx.kernel, weight, drive, ctx.settings.limits, keep=keep)
    ctx.settings.report("free", phases.as_solution(free))
    if keep:
        ctx.save_for_backward(x, weight_in, weight, drive, free.image, free.state, free.product)
    return (free.image,)


def _backward_by_kernel(ctx: Any, cotangent: Tensor) -> Gradients:
    settings: Settings = ctx.settings
    x, weight_in, weight, drive, image, state, product = ctx.saved_tensors
    if settings.gradient.betas is None:
        raise AssertionError("a kernel covers estimators with two phases")
    contrast = phases.nudged_phases(
        ctx.kernel, weight, drive, (image, state, product), cotangent, settings.gradient.betas,
        settings.limits, settings.report,
    )  # fmt: skip
    wants = ctx.needs_input_grad[1:]
    return phases.hebbian_updates(ctx.kernel, contrast, x, weight_in, wants)
