"""A training step in two compiled calls, where nothing asks for more.

Around small networks Python takes longer than the network. Here the weights' balls, the drive, the
free phase and a linear readout are one call; the nudged phases, all gradients and those behind the
balls another, with one node of the graph for both. The compiled code is that of the parts, and
finds the same numbers. What this serves is what most people train with: dense tanh layers,
`CenteredEP`, numbers in the memory of the CPU. Everything else takes the general path
(`equilibrium`), and so does a backward pass that turns out to need it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from toreqprop.checks import unchecked
from toreqprop.energies import Params
from toreqprop.energies.bounded import behind_balls
from toreqprop.energies.nudging import nothing_like
from toreqprop.energies.system import PairSystem
from toreqprop.errors import NotFiniteError
from toreqprop.gradients import CenteredEP, Problem
from toreqprop.gradients.base import normalise
from toreqprop.kernels import compiled_available, get_kernel
from toreqprop.models.readout import Readout
from toreqprop.models.ties import Ties, matrices_of
from toreqprop.models.whole_step import NotServedError, Step, mirrored
from toreqprop.solution import Solution, State
from toreqprop.solvers import Hook
from toreqprop.solvers.relaxation import checked, unquestioned
from toreqprop.tracing import (
    direct,
    has_global_hooks,
    has_memory,
    is_autocast,
    is_traced,
    is_transformed,
    last_backward,
)

if TYPE_CHECKING:
    from toreqprop.models.base import EquilibriumModel


_steps: WeakKeyDictionary[nn.Module, Step] = WeakKeyDictionary()


def compiled_step(
    model: EquilibriumModel, x: Tensor, readout: Readout | None = None
) -> tuple[Solution, Tensor | None] | None:
    """The free equilibrium with its graph, as `equilibrium` finds it, or what is read out of it,
    which has the graph then; None where this does not serve."""
    if is_transformed() or is_traced() or torch.compiler.is_compiling():
        return None
    if not _is_matrix(x) or any(name in model.__dict__ for name in _USED) or has_global_hooks():
        return None
    reads = readout is not None
    if reads and ("equilibrium" in model.__dict__ or not len(x) or is_autocast(x)):
        return None
    found = model.matrices()
    if found is None:
        return None
    layers = tuple(found)
    step = _steps.get(model)
    ties = step.ties(layers, readout) if step is not None and step.holds(model, x.dtype) else None
    if ties is None:  # the first time, or something has changed
        step = _new(model, layers, x.dtype)
        ties = None if step is None else step.ties(layers, readout)
        if step is None or ties is None:
            return None
        _steps[model] = step
    assert step is not None
    if x.shape[1] != step.shapes[0][1]:
        return None
    run = _Run(step, ties, model._report)
    try:
        state = _apply(run, x, *ties.params)
    except NotServedError:
        return None
    solution = run.solution
    del run.solution  # the graph does not need it
    return (solution, state[0]) if reads else (solution.but(state=state), None)


_USED = ("system_parameters", "readout_from", "field_input", "check_input")
"""Methods of a model that the step does the work of: one may be set on the instance."""


def _is_matrix(x: Tensor) -> bool:
    """Whether an input is numbers in rows in the memory of the CPU, and nobody has to see what is
    done with them."""
    if type(x) is not Tensor or not x.is_cpu or x.layout is not torch.strided or x.dim() != 2:
        return False
    there = x.is_contiguous() and not x.is_neg() and has_memory(x)
    return there and not torch._C._len_torch_dispatch_stack()


@cache
def _as_written(kind: type[nn.Module]) -> bool:
    """Whether who says which matrices a network has, and how it is read out, is also who, or below
    who, says what it uses of them and does."""
    order = kind.__mro__

    def first(*names: str) -> int:
        return min(next(k for k, base in enumerate(order) if n in base.__dict__) for n in names)

    return first("matrices") <= first("system_parameters", "field_input") and first(
        "linear_readout"
    ) <= first("readout_from", "equilibrium", "check_input")


def _new(model: EquilibriumModel, layers: Any, dtype: torch.dtype) -> Step | None:
    gradient: Any = model._gradient
    if type(gradient) is not CenteredEP or not _as_written(type(model)):
        return None
    if gradient.swap or gradient.max_gain is not None:
        return None
    if not compiled_available() or get_kernel(model._kernel) is None or model._kernel == "numpy":
        return None
    given = matrices_of(layers)
    if given is None or given.params[0].dtype != dtype:
        return None
    for ball, at in zip(given.balls, given.inside, strict=True):
        if not ball.compiled or ball.shape != given.params[at].shape:
            return None
    from toreqprop.models.loop_step import LoopStep
    from toreqprop.models.stack_step import StackStep

    for kind in (StackStep, LoopStep):
        if kind.serves(model, given):
            return kind(model, given, dtype)
    return None


class _Run:
    """One training step: whose it is, and what the forward pass found beside the tensors that
    autograd carries."""

    __slots__ = ("balls", "report", "solution", "step", "ties")
    solution: Solution
    balls: np.ndarray

    def __init__(self, step: Step, ties: Ties, report: Hook) -> None:
        self.step, self.ties, self.report = step, ties, report


class _Step(torch.autograd.Function):
    """Forward: balls, drive, free phase, readout. Backward: nudged phases, gradients, balls."""

    @staticmethod
    def forward(ctx: Any, run: _Run, x: Tensor, *params: Tensor) -> State:
        step, ties = run.step, run.ties
        count = int(ties.own[-1])
        said = x.new_empty(x.shape[0], count) if count else None
        run.solution, scratch, run.balls = step.free(x, ties, said)
        own, balls, solution = params[: len(step.shapes)], run.balls, run.solution
        # Nothing refers to itself here: memory would stay until somebody collects it.
        solution.__dict__["bound"] = lambda: step.system(x, own, scratch, balls).error_bound(
            step.states(scratch, len(x))
        )
        run.report("free", solution)
        ctx.run = run
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, scratch, *params)
        return solution.state if said is None else (said,)

    @staticmethod
    @last_backward
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        run: _Run = ctx.run
        step, ties = run.step, run.ties
        x, scratch, *params = ctx.saved_tensors
        *lower, top = cotangents
        reads = bool(ties.own[-1])
        if reads and top is None:
            return (None,) * (2 + len(params))
        more = lower and any(g is not None for g in lower)
        # Somebody may have moved a parameter since.
        if top is None or more or not ties.stay(params):
            return (None, *_generally(ctx, x, scratch, params, cotangents, step.kernel))
        if top.dtype is not x.dtype or not top.is_contiguous():
            top = top.to(x.dtype).contiguous()
        if top.is_neg() or not has_memory(top):
            top = top.clone()  # zeros that nobody has written, or numbers of another sign
        found = step.nudged(x, ties, scratch, top, run.balls)
        ended = found.solution
        if ended is None:
            kernel = step.kernel if found.gradients else "torch"
            return (None, *_generally(ctx, x, scratch, params, cotangents, kernel))
        work, own = found.work, params[: len(step.shapes)]
        late: Any = ended.__dict__["late"]
        ended.__dict__["bound"] = lambda: _both(run, x, own, scratch, work).error_bound(
            (*late()["state"], *late()["shift"])
        )
        if not unquestioned(ended.changes, len(x), step.shapes[1::2], step.dtype):
            free = step.states(scratch, len(x))
            ended = checked(ended, step.mirrored, free, step.solver.tol)
        run.report("nudged", ended)
        if found.due:
            weights = step.weights(own, scratch, run.balls)
            for ball, bounded in zip(step.balls, weights, strict=True):
                ball.prove(bounded)
        slope = None
        if ctx.needs_input_grad[1]:
            slope = step.input_gradient(own, _slope(ended, work), ended.shift[0])
        return (None, slope, *found.gradients)


_apply = direct(_Step)


def _slope(ended: Solution, work: Tensor) -> Tensor:
    """The slope of the top layer, with which the memory of the nudged phases begins."""
    top = ended.shift[-1]
    return work.narrow(0, 0, top.numel()).view(top.shape)


def _both(run: _Run, x: Tensor, params: Params, scratch: Tensor, work: Tensor) -> PairSystem:
    """What was relaxed, whole."""
    step = run.step
    *lower, top = step.states(scratch, len(x))
    slope = work.narrow(0, 0, top.numel()).view(top.shape)
    direction, _ = normalise((*map(nothing_like, lower), slope))
    both = mirrored(step.field, x, direction, step.gradient.beta)  # type: ignore[attr-defined]
    return unchecked(
        PairSystem, system=step.system(x, params, scratch, run.balls), nudge=both.nudge
    )


def _generally(
    ctx: Any, x: Tensor, scratch: Tensor, params: Any, cotangents: Any, kernel: str | None
) -> list[Tensor | None]:
    """The gradients of input and parameters by the general path, and then behind the balls."""
    run: _Run = ctx.run
    step, balls = run.step, run.balls
    state, read = step.states(scratch, len(x)), []
    if run.ties.own[-1]:
        params, (weight, _) = params[:-2], params[-2:]
        gain, lift = run.ties.gains.tolist()
        said = cotangents[0].to(x.dtype)
        read = [gain * (said.mT @ state[-1]), lift * said.sum(0)]
        cotangents = (*[None] * (len(state) - 1), gain * (said @ weight))
    system = step.system(x, params, scratch, balls)
    cotangent = tuple(
        nothing_like(s) if g is None else g.to(s.dtype)
        for g, s in zip(cotangents, state, strict=True)
    )
    problem = unchecked(
        Problem,
        system=system,
        solver=step.solver,
        wants=(ctx.needs_input_grad[1], *[True] * len(params)),
        report=run.report,
        kernel=kernel,
        memory=step.memory_of(scratch, len(x)),
    )
    try:
        own, *gradients = step.gradient.backward(problem, state, cotangent)
    except NotFiniteError:
        # As everywhere in torch: a loss that is not finite has gradients that are not.
        return [torch.full_like(p, torch.nan) for p in (x, *params)] + read
    if step.balls:
        asked = [gradients[at] for at in step.inside]
        vectors, weights = step.vectors(scratch, len(x)), step.weights(params, scratch, balls)
        found = balls.copy()
        found[:, 3] = 1  # these are the weights themselves
        behind = behind_balls(step.balls, step.layout, found, vectors, weights, asked)
        for at, gradient in zip(step.inside, behind, strict=True):
            gradients[at] = gradient
    return [own, *gradients, *read]
