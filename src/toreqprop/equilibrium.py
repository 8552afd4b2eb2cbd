"""Where relaxation meets autograd: the one Function whose backward is a nudged phase."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.energies import Params, System, VectorField
from toreqprop.energies.nudging import nothing_like
from toreqprop.errors import NotFiniteError, UnsupportedModelError
from toreqprop.gradients import GradientEstimator, Problem, UnrolledGradient
from toreqprop.solution import Solution, State, Status
from toreqprop.solvers import Hook, Solver, Trace, relax
from toreqprop.tracing import direct, full_precision, is_traced, is_transformed, last_backward


@dataclass(frozen=True)
class Settings:
    """How an equilibrium is found and differentiated; everything but the tensors.

    ``kernel`` names the code that relaxes the systems it serves (see `solvers.relaxation`);
    ``start`` is where the free phase begins, None for the field's own choice.
    """

    field: VectorField
    solver: Solver
    gradient: GradientEstimator
    report: Hook
    contraction: float | None = None
    kernel: str | None = None
    start: State | None = None
    trace: Trace | None = None


class _Found:
    """What the forward pass found, beside the tensors autograd carries."""

    __slots__ = ("solution",)  # an object: ``torch.func`` would make another list of a list
    solution: Solution


def equilibrium(settings: Settings, x: Tensor, params: Params) -> Solution:
    """The free equilibrium, its state a differentiable function of ``x`` and ``params``.

    The backward pass of ``state`` runs the nudged phases of ``settings.gradient``. What is saved
    for it (inputs, parameters, drive, equilibrium) does not depend on how long it relaxed.
    """
    if isinstance(settings.gradient, UnrolledGradient):
        if settings.gradient.tol is not None:
            refuse_tracing()
        state, steps = settings.gradient.trajectory(settings.field, x, params)
        if is_traced():
            nothing = torch.zeros(len(x), dtype=torch.float64)
            return Solution(state, steps, nothing, Status.CONVERGED)
        with torch.no_grad():
            system = System.bind(settings.field, x.detach(), tuple(p.detach() for p in params))
            reached = tuple(s.detach() for s in state)
            last = relax(system, settings.solver.limited(max_steps=1), start=reached)
        return last.but(state=state, steps=steps)
    refuse_tracing()
    found = _Found()
    apply = _TransformedEquilibrium.apply if is_transformed() else _apply
    tensors = apply(settings, found, x, *params)
    solution = found.solution
    return solution.but(state=tensors[: len(solution.state)])


def refuse_tracing() -> None:
    """A trace would freeze the number of steps that one input happened to need."""
    if is_traced():
        raise UnsupportedModelError(
            "A relaxation takes as many steps as its input needs and cannot be traced or exported: "
            "set model.gradient = UnrolledGradient(steps=30) first, which takes a fixed number."
        )


class _Equilibrium(torch.autograd.Function):
    """Forward: free phase. Backward: nudged phases. No graph through either."""

    @staticmethod
    def forward(ctx: Any, settings: Settings, found: _Found, x: Tensor, *params: Tensor) -> State:
        kept = _free_phase(settings, found, x, params)
        _keep(ctx, settings, found, (x, *params), kept)
        return kept[: ctx.layers]

    @staticmethod
    @last_backward
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        return _nudged_phases(ctx, cotangents)


_apply = direct(_Equilibrium)


class _TransformedEquilibrium(torch.autograd.Function):
    """The same in the form that ``torch.func`` asks for, which costs more at every call.

    Beside the state the drive and what the free phase knows are outputs, without gradients: only
    so can they be saved.
    """

    @staticmethod
    def forward(settings: Settings, found: _Found, x: Tensor, *params: Tensor) -> State:
        output = _free_phase(settings, found, x, params)
        given = {id(t) for t in (x, *params)}
        # What is an input itself cannot be an output too.
        return tuple(t.clone() if id(t) in given else t for t in output)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: State) -> None:
        settings, found, *tensors = inputs
        _keep(ctx, settings, found, tuple(tensors), output)
        ctx.mark_non_differentiable(*output[ctx.layers :])

    @staticmethod
    @last_backward
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        return _nudged_phases(ctx, cotangents)


def _free_phase(settings: Settings, found: _Found, x: Tensor, params: Params) -> State:
    """The state, the drive and what is known already, in this order."""
    with full_precision(x):
        system = System.bind(settings.field, x, params, settings.contraction)
        solution = relax(
            system,
            settings.solver,
            start=settings.start,
            kernel=settings.kernel,
            trace=settings.trace,
        )
    found.solution = solution
    settings.report("free", solution)
    return (*solution.state, *system.drive, *solution.memory)


def _keep(
    ctx: Any, settings: Settings, found: _Found, given: tuple[Tensor, ...], kept: State
) -> None:
    solution = found.solution
    ctx.settings, ctx.given = settings, len(given)
    ctx.layers, ctx.known = len(solution.state), len(solution.memory)
    ctx.set_materialize_grads(False)
    if any(ctx.needs_input_grad):
        ctx.save_for_backward(*given, *kept)


def _nudged_phases(ctx: Any, cotangents: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    settings: Settings = ctx.settings
    saved = ctx.saved_tensors
    (x, *params), kept = saved[: ctx.given], saved[ctx.given :]
    free = kept[: ctx.layers]
    known = len(kept) - ctx.known
    drive, memory = kept[ctx.layers : known], kept[known:]
    cotangent = tuple(
        nothing_like(s) if g is None else g if g.dtype == s.dtype else g.to(s.dtype)
        for g, s in zip(cotangents[: ctx.layers], free, strict=True)
    )
    wants = tuple(ctx.needs_input_grad[2:])
    with full_precision(x):
        # All of it went through the checks of the free phase.
        system = checks.unchecked(
            System,
            field=settings.field,
            x=x,
            params=tuple(params),
            drive=drive,
            contraction=settings.contraction,
        )
        problem = checks.unchecked(
            Problem,
            system=system,
            solver=settings.solver,
            wants=wants,
            report=settings.report,
            kernel=settings.kernel,
            memory=memory,
        )
        try:
            return (None, None, *settings.gradient.backward(problem, free, cotangent))
        except NotFiniteError:
            # As everywhere in torch: a loss that is not finite has gradients that are not.
            asked = zip((x, *params), wants, strict=True)
            return (None, None, *(torch.full_like(t, torch.nan) if w else None for t, w in asked))
