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
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from toreqprop.checks import unchecked
from toreqprop.energies import (
    Params,
)
from toreqprop.energies.bounded import behind_balls, stays
from toreqprop.energies.nudging import nothing_like
from toreqprop.energies.system import PairSystem
from toreqprop.errors import NotFiniteError
from toreqprop.gradients import CenteredEP, Problem
from toreqprop.gradients.base import normalise
from toreqprop.kernels import compiled_available, get_kernel
from toreqprop.models.readout import Readout
from toreqprop.models.whole_step import (
    NOTHING,
    Matrices,
    NotServedError,
    Reading,
    Step,
    matrices_of,
    mirrored,
)
from toreqprop.solution import Solution, State
from toreqprop.solvers import Hook
from toreqprop.solvers.relaxation import checked
from toreqprop.tracing import (
    all_plain,
    direct,
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
    if type(model._gradient) is not CenteredEP or not _as_written(type(model)):
        return None
    own = model.__dict__
    layers = None if "system_parameters" in own else model.matrices()
    if layers is None or is_transformed() or is_traced() or torch.compiler.is_compiling():
        return None
    if readout is not None and ("equilibrium" in own or not _is_batch(x) or is_autocast(x)):
        return None
    if not x.is_contiguous():
        return None
    given = matrices_of(layers)
    if given is None:
        return None
    read = () if readout is None else _read_by(readout.layer)
    if read is None:
        return None
    seen = [x, *given.params, *read]
    for ball in given.balls:
        buffers: Any = ball._buffers
        if not stays(ball, buffers["start"], x.dtype):
            return None
        seen += (buffers["start"], buffers["margin"])
    if not all_plain(seen):
        return None
    step = _steps.get(model)
    if step is None or not step.holds(model, given, x.dtype):
        step = _new(model, given, x.dtype)
        if step is None:
            return None
        _steps[model] = step
    found = _Found()
    if readout is not None:
        if x.shape[1] != step.shapes[0][1]:
            return None
        found.gains = np.array(readout[1:])
    try:
        state = _apply(step, found, model._report, x, *given.params, *read)
    except NotServedError:
        return None
    if readout is not None:
        return found.solution, state[0]
    return found.solution.but(state=state), None


def _is_batch(x: Any) -> bool:
    """Whether it is worth a try; numbers that are not finite are found on the way."""
    return isinstance(x, Tensor) and x.dim() == 2 and x.shape[0] > 0


def _read_by(layer: Any) -> tuple[Tensor, Tensor] | None:
    """Weight and bias of a linear layer whose calls nobody waits for."""
    if type(layer) is not nn.Linear or "forward" in layer.__dict__:
        return None
    if (
        layer._forward_hooks
        or layer._forward_pre_hooks
        or layer._backward_hooks
        or layer._backward_pre_hooks
    ):
        return None
    weight, bias = layer._parameters["weight"], layer._parameters["bias"]
    for param in (weight, bias):
        if param is None or not param.requires_grad or not param.is_contiguous():
            return None
    return cast(tuple[Tensor, Tensor], (weight, bias))


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


def _new(model: EquilibriumModel, given: Matrices, dtype: torch.dtype) -> Step | None:
    gradient: Any = model._gradient
    if gradient.swap or gradient.max_gain is not None:
        return None
    if not compiled_available() or get_kernel(model._kernel) is None or model._kernel == "numpy":
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


class _Found:
    """What the forward pass found, beside the tensors autograd carries; ``gains`` are those of
    what is read out, if anything is."""

    __slots__ = ("gains", "solution")
    solution: Solution
    gains: np.ndarray | None

    def __init__(self) -> None:
        self.gains = None


class _Step(torch.autograd.Function):
    """Forward: balls, drive, free phase, readout. Backward: nudged phases, gradients, balls."""

    @staticmethod
    def forward(
        ctx: Any, step: Step, found: _Found, report: Hook, x: Tensor, *params: Tensor
    ) -> State:
        own, reading = params, NOTHING
        if found.gains is not None:
            own, (weight, bias) = params[:-2], params[-2:]
            out = x.new_empty(x.shape[0], weight.shape[0])
            reading = _reading(found.gains, weight, bias, out)
        solution, scratch, inside = step.free(x, own, reading)
        state = solution.state
        found.solution = step.bounded(
            solution, lambda: step.system(x, own, scratch, inside).error_bound(state)
        )
        report("free", solution)
        ctx.step, ctx.report, ctx.inside, ctx.params = step, report, inside, len(params)
        ctx.gains = found.gains
        ctx.set_materialize_grads(False)
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(x, *params, scratch, *state)
        return state if found.gains is None else (out,)

    @staticmethod
    @last_backward
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        step: Step = ctx.step
        saved = ctx.saved_tensors
        x, params, kept = saved[0], saved[1 : 1 + ctx.params], saved[1 + ctx.params :]
        *lower, top = cotangents
        general = top is None or any(g is not None for g in lower)
        solution, gradients, slope = None, list(params), cast(Tensor, top)
        reading, read = NOTHING, cast(tuple[Tensor, ...], ())
        if ctx.gains is not None:
            if top is None:
                return (None,) * (4 + len(params))
            params, (weight, bias) = params[:-2], params[-2:]
            said = slope.to(x.dtype).contiguous()
            read = torch.empty_like(weight), torch.empty_like(bias)
            reading, slope = _reading(ctx.gains, weight, said, *read), torch.empty_like(kept[-1])
        if not general:
            solution, gradients, due = step.nudged(x, params, kept, slope, ctx.inside, reading)
        if solution is None:
            kernel = step.kernel if gradients else "torch"
            if ctx.gains is not None:
                gain, lift = ctx.gains.tolist()
                read = gain * (said.mT @ kept[-1]), lift * said.sum(0)
                cotangents = (*[None] * (len(kept) - 2), gain * (said @ weight))
            found = _generally(ctx, x, params, kept, cotangents, kernel)
            return (None, None, None, *found, *read)
        state, ends = kept[1:], (*solution.state, *solution.shift)
        step.bounded(solution, lambda: _both(ctx, x, params, kept, slope).error_bound(ends))
        ctx.report("nudged", checked(solution, step.mirrored, state, step.solver.tol))
        if due:
            weights = step.weights(params, kept[0], ctx.inside)
            for ball, bounded in zip(step.balls, weights, strict=True):
                ball.prove(bounded)
        own = None
        if ctx.needs_input_grad[3]:
            own = step.input_gradient(params, slope, solution.shift[0])
        return (None, None, None, own, *gradients, *read)


def _reading(gains: np.ndarray, *tensors: Tensor) -> Reading:
    """Weight, bias and what is said; or weight, cotangent and two gradients."""
    places = [t.data_ptr() for t in tensors]
    return Reading(gains, np.array([*places, tensors[0].shape[0]], np.int64), tensors)


_apply = direct(_Step)


def _both(ctx: Any, x: Tensor, params: Params, kept: State, slope: Tensor) -> PairSystem:
    """What was relaxed, whole."""
    step: Step = ctx.step
    direction, _ = normalise((*map(nothing_like, kept[1:-1]), slope.to(x.dtype)))
    both = mirrored(step.field, x, direction, step.gradient.beta)  # type: ignore[attr-defined]
    return unchecked(
        PairSystem, system=step.system(x, params, kept[0], ctx.inside), nudge=both.nudge
    )


def _generally(
    ctx: Any, x: Tensor, params: Params, kept: State, cotangents: Any, kernel: str | None
) -> list[Tensor | None]:
    """The gradients of input and parameters by the general path, and then behind the balls."""
    step, scratch, state = ctx.step, kept[0], kept[1:]
    system = step.system(x, params, scratch, ctx.inside)
    cotangent = tuple(
        nothing_like(s) if g is None else g.to(s.dtype)
        for g, s in zip(cotangents, state, strict=True)
    )
    problem = unchecked(
        Problem,
        system=system,
        solver=step.solver,
        wants=(ctx.needs_input_grad[3], *[True] * len(params)),
        report=ctx.report,
        kernel=kernel,
        memory=step.memory_of(scratch, len(x)),
    )
    try:
        own, *gradients = step.gradient.backward(problem, state, cotangent)
    except NotFiniteError:
        # As everywhere in torch: a loss that is not finite has gradients that are not.
        return [torch.full_like(p, torch.nan) for p in (x, *params)]
    if step.balls:
        asked = [gradients[at] for at in step.inside]
        vectors, weights = step.vectors(scratch, len(x)), step.weights(params, scratch, ctx.inside)
        found = ctx.inside.copy()
        found[:, 3] = 1  # these are the weights themselves
        behind = behind_balls(step.balls, step.layout, found, vectors, weights, asked)
        for at, gradient in zip(step.inside, behind, strict=True):
            gradients[at] = gradient
    return [own, *gradients]
