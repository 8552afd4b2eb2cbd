"""Where relaxation meets autograd: forward is the free phase, backward the nudged ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from toreqprop.energies import DenseEnergy, Params, System, Tanh, VectorField
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
    kernel = _covering_kernel(settings, x)
    if kernel is not None:
        return (_KernelEquilibrium.apply(settings, kernel, x, *params),)
    return _Equilibrium.apply(settings, x, *params)


def _covering_kernel(settings: Settings, x: Tensor) -> Kernel | None:
    """The kernel, where the case is its own: one dense tanh layer, plain iteration, two phases."""
    if (
        settings.kernel is None
        or settings.gradient.betas is None
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


class _KernelEquilibrium(torch.autograd.Function):
    """The same for one dense layer, by a kernel."""

    @staticmethod
    def forward(
        ctx: Any, settings: Settings, kernel: Kernel, x: Tensor, *params: Tensor
    ) -> Tensor:
        weight_in, bias, weight = params
        drive = torch.nn.functional.linear(x, weight_in, bias)
        keep = any(ctx.needs_input_grad)
        free = phases.free_phase(kernel, weight, drive, settings.limits, keep=keep)
        settings.report("free", phases.as_solution(free))
        if keep:
            ctx.settings, ctx.kernel = settings, kernel
            ctx.save_for_backward(
                x, weight_in, weight, drive, free.image, free.state, free.product
            )
        return free.image

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        settings, kernel = ctx.settings, ctx.kernel
        x, weight_in, weight, drive, *free = ctx.saved_tensors
        contrast = phases.nudged_phases(
            kernel, weight, drive, tuple(free), cotangent, settings.gradient.betas,
            settings.limits, settings.report,
        )  # fmt: skip
        wants = ctx.needs_input_grad[2:]
        return (None, None, *phases.hebbian_updates(kernel, contrast, x, weight_in, wants))
