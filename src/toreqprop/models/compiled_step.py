"""A training step in two compiled calls, where nothing asks for more.

Around small networks Python takes longer than the network. Here the weights' balls, the drive and
the free phase are one call; the nudged phases, all gradients and those behind the balls another,
with one node of the graph for both. The compiled code is that of the parts, and finds the same
numbers. What this serves is what most people train with: dense tanh layers, `CenteredEP`, numbers
in the memory of the CPU. Everything else takes the general path (`equilibrium`), and so does a
backward pass that turns out to need it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from toreqprop.checks import unchecked
from toreqprop.energies import (
    LinearNudge,
    Opposed,
    Params,
    StackEnergy,
    System,
    VectorField,
)
from toreqprop.energies.bounded import Layout, behind_balls, laid_out, stays
from toreqprop.energies.nudging import nothing_like
from toreqprop.energies.system import PairSystem
from toreqprop.energies.tight_ball import TightBall
from toreqprop.errors import NotFiniteError
from toreqprop.gradients import CenteredEP, Problem
from toreqprop.gradients.base import measured, normalise
from toreqprop.kernels import compiled_available, get_kernel
from toreqprop.kernels.base import status
from toreqprop.kernels.reference import LARGEST_PUSH
from toreqprop.models.constrained import Constrained, is_watched
from toreqprop.solution import Solution, State
from toreqprop.solvers import Hook
from toreqprop.solvers.relaxation import checked
from toreqprop.tracing import all_plain, direct, is_traced, is_transformed, last_backward

if TYPE_CHECKING:
    from toreqprop.models.base import EquilibriumModel


class Matrices(NamedTuple):
    """The parameters of layers, as the optimizer moves them; the balls that some of them are
    brought into, and which these are."""

    params: tuple[Tensor, ...]
    balls: tuple[TightBall, ...]
    inside: tuple[int, ...]


def matrices_of(layers: Sequence[nn.Module]) -> Matrices | None:
    """Weights and biases of layers in turn; None where somebody waits for a call of one, or where
    constraints are others than one tight ball."""
    params: list[Any] = []
    balls: list[TightBall] = []
    inside: list[int] = []
    for layer in layers:
        own, kind = layer._parameters, type(layer)
        if layer._forward_pre_hooks or (kind is not nn.Linear and kind is not Constrained):
            return None
        if kind is nn.Linear:
            params += (own.get("weight"), own.get("bias"))
            continue
        parts: Any = layer._modules
        limits = tuple(parts["constraints"]._modules.values())
        if len(limits) != 1 or parts["bias_constraints"]._modules:
            return None
        ball = limits[0]
        if type(ball) is not TightBall or is_watched(ball):
            return None
        balls.append(ball)
        inside.append(len(params))
        params.append(own["raw"])
        if own.get("raw_bias") is not None:
            params.append(own["raw_bias"])
    for param in params:
        if param is None or not param.requires_grad or not param.is_contiguous():
            return None
    return Matrices(tuple(params), tuple(balls), tuple(inside))


class Step(ABC):
    """All of a model that stays from step to step, and its two calls.

    ``scratch`` is memory of the forward pass that the backward pass needs: ``before`` numbers for
    each sample, the vectors of the norms, and the bounded weights, where these are ``written`` and
    not just a factor at products.
    """

    before: int
    written: ClassVar[bool] = True

    def __init__(self, model: EquilibriumModel, given: Matrices, dtype: torch.dtype) -> None:
        self.field, self.solver = model.field, model._solver
        self.gradient, self.kernel = model._gradient, model._kernel
        self.contraction = model.residual_factor()
        self.dtype, self.size = dtype, dtype.itemsize
        self.shapes = tuple([p.shape for p in given.params])
        self.balls, self.inside = given.balls, given.inside
        self.radii = tuple([ball.radius for ball in given.balls])
        kinds = [(b.shape, b.blocks, b.symmetric, b.radius) for b in given.balls]
        self.layout = laid_out(tuple(kinds)) if kinds else Layout.none()
        numbers = [b.shape[0] * b.shape[1] if self.written else 0 for b in given.balls]
        self.places = (self.layout.total + np.cumsum([0, *numbers])).tolist()
        beta = float(self.gradient.beta)  # type: ignore[attr-defined]
        self.nudge = np.array([beta, self.gradient.coefficient, LARGEST_PUSH])  # type: ignore[attr-defined]

    @staticmethod
    @abstractmethod
    def serves(model: EquilibriumModel, given: Matrices) -> bool:
        """Whether the model is of this kind; its gradient is `CenteredEP`."""

    @abstractmethod
    def free(self, x: Tensor, params: Params) -> tuple[Solution, Tensor, np.ndarray]:
        """The free phase, ``scratch``, and what is known of the balls.

        Raises:
            NotServedError: the numbers are such that only the general path can.
        """

    @abstractmethod
    def nudged(
        self, x: Tensor, params: Params, kept: State, slope: Tensor, found: np.ndarray
    ) -> tuple[Solution | None, list[Tensor], bool]:
        """Both nudged phases, the gradients of the parameters, and whether a proof is due. No
        solution where the general path has to find it, and no gradients where it is to do so
        without compiled code."""

    def memory_of(self, scratch: Tensor, batch: int) -> tuple[Tensor, ...]:
        """What the free phase's solution would know on the general path."""
        return ()

    def input_gradient(self, params: Params, slope: Tensor, shift: Tensor) -> Tensor:
        """That of the input, from the lowest layer's shift: few ask for it."""
        field, coefficient = self.field, self.gradient.coefficient  # type: ignore[attr-defined]
        heat = field.temperature(0) if isinstance(field, StackEnergy) else 1.0
        weight = measured((slope.to(shift.dtype),), coefficient)[1]
        return (-heat * weight).unsqueeze(1) * (shift @ params[0].detach())

    def holds(self, model: EquilibriumModel, given: Matrices, dtype: torch.dtype) -> bool:
        """Whether this is the model as it is now."""
        return (
            self.solver is model._solver
            and self.gradient is model._gradient
            and self.field is model.field
            and self.kernel == model._kernel
            and self.dtype == dtype
            and self.balls == given.balls
            and self.shapes == tuple([p.shape for p in given.params])
            and self.radii == tuple([ball.radius for ball in given.balls])
            and self.contraction == model.residual_factor()
        )

    def room(self, batch: int) -> int:
        """Numbers of ``scratch``."""
        return batch * self.before + self.places[-1]

    def used(self, params: Params, scratch: Tensor, batch: int) -> list[int]:
        """Addresses of the parameters as they are used: written weights in their places."""
        found = [p.data_ptr() for p in params]
        if not self.written:
            return found
        begin = scratch.data_ptr() + self.size * batch * self.before
        for at, place in zip(self.inside, self.places, strict=False):
            found[at] = begin + self.size * place
        return found

    def ball_places(
        self, first: Sequence[Tensor], used: list[int], scratch: Tensor, batch: int
    ) -> np.ndarray:
        """The addresses that `kernels.balls` takes, those of ``first`` in their first column."""
        size, begin = self.size, scratch.data_ptr() + self.size * batch * self.before
        found: list[int] = []
        for ball, at, (left, right) in zip(
            self.balls, self.inside, self.layout.offsets, strict=True
        ):
            buffers: Any = ball._buffers
            start = buffers["start"]
            found += (
                first[at].data_ptr(), used[at],
                start.data_ptr() if stays(ball, start, self.dtype) else 0,
                begin + size * left, begin + size * right,
                buffers["margin"].data_ptr(), buffers["steps"].data_ptr(), 0,
            )  # fmt: skip
        return np.array(found, np.int64).reshape(-1, 8)

    def vectors(self, scratch: Tensor, batch: int) -> Tensor:
        """The vectors of the norms."""
        return scratch.narrow(0, batch * self.before, self.layout.total)

    def weights(self, params: Params, scratch: Tensor, found: np.ndarray) -> list[Tensor]:
        """The bounded weights."""
        if not self.written:
            factors = found[:, 1].tolist()
            return [params[at].detach() * f for at, f in zip(self.inside, factors, strict=True)]
        begin = scratch.numel() - self.places[-1]
        return [
            scratch.narrow(0, begin + at, ball.shape[0] * ball.shape[1]).view(ball.shape)
            for ball, at in zip(self.balls, self.places, strict=False)
        ]

    def system(self, x: Tensor, params: Params, scratch: Tensor, found: np.ndarray) -> System:
        """The free system, of the parameters as they are used."""
        used = [p.detach() for p in params]
        for at, weight in zip(self.inside, self.weights(params, scratch, found), strict=True):
            used[at] = weight
        return System.bind(self.field, x, tuple(used), self.contraction)

    def solution(
        self, state: State, steps: int, residual: Tensor, good: bool, finite: bool, layer: int,
        **more: Any,
    ) -> Solution:  # fmt: skip
        """What a phase ended with."""
        good = good and finite
        return unchecked(
            Solution,
            state=state,
            steps=steps,
            residual=residual,
            status=status(good, finite),
            layer=None if good else layer,
            memory=(),
            **more,
        )


_steps: WeakKeyDictionary[nn.Module, Step] = WeakKeyDictionary()


def compiled_step(model: EquilibriumModel, x: Tensor) -> Solution | None:
    """The free equilibrium with its graph, as `equilibrium` finds it; None where this does not
    serve."""
    if type(model._gradient) is not CenteredEP or not _as_written(type(model)):
        return None
    layers = None if "system_parameters" in model.__dict__ else model.matrices()
    if layers is None or not x.is_contiguous():
        return None
    if is_transformed() or is_traced() or torch.compiler.is_compiling():
        return None
    given = matrices_of(layers)
    if given is None:
        return None
    seen = [x, *given.params]
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
    try:
        state = _apply(step, found, model._report, x, *given.params)
    except NotServedError:
        return None
    return found.solution.but(state=state)


@cache
def _as_written(kind: type[nn.Module]) -> bool:
    """Whether who says which matrices a network has is also who, or below who, says what it uses
    of them."""
    order = kind.__mro__
    first = [
        next(k for k, base in enumerate(order) if name in base.__dict__)
        for name in ("matrices", "system_parameters", "field_input")
    ]
    return first[0] <= min(first)


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


class NotServedError(Exception):
    """The general path has to do it."""


class _Found:
    """What the forward pass found, beside the tensors autograd carries."""

    __slots__ = ("solution",)
    solution: Solution


class _Step(torch.autograd.Function):
    """Forward: balls, drive, free phase. Backward: nudged phases, gradients, balls."""

    @staticmethod
    def forward(
        ctx: Any, step: Step, found: _Found, report: Hook, x: Tensor, *params: Tensor
    ) -> State:
        solution, scratch, inside = step.free(x, params)
        state = solution.state
        found.solution = solution.but(
            bound=lambda: step.system(x, params, scratch, inside).error_bound(state)
        )
        report("free", found.solution)
        ctx.step, ctx.report, ctx.inside, ctx.params = step, report, inside, len(params)
        ctx.set_materialize_grads(False)
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(x, *params, scratch, *state)
        return state

    @staticmethod
    @last_backward
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        step: Step = ctx.step
        saved = ctx.saved_tensors
        x, params, kept = saved[0], saved[1 : 1 + ctx.params], saved[1 + ctx.params :]
        *lower, top = cotangents
        general = top is None or any(g is not None for g in lower)
        solution, gradients, slope = None, list(params), cast(Tensor, top)
        if not general:
            solution, gradients, due = step.nudged(x, params, kept, slope, ctx.inside)
        if solution is None:
            kernel = step.kernel if gradients else "torch"
            return (None, None, None, *_generally(ctx, x, params, kept, cotangents, kernel))
        state, ends = kept[1:], (*solution.state, *solution.shift)
        solution = solution.but(bound=lambda: _both(ctx, x, params, kept, slope).error_bound(ends))
        both = _mirrored(step.field, x, state, step.gradient.beta)  # type: ignore[attr-defined]
        ctx.report("nudged", checked(solution, both, state, step.solver.tol))
        if due:
            weights = step.weights(params, kept[0], ctx.inside)
            for ball, weight in zip(step.balls, weights, strict=True):
                ball.prove(weight)
        own = None
        if ctx.needs_input_grad[3]:
            own = step.input_gradient(params, slope, solution.shift[0])
        return (None, None, None, own, *gradients)


_apply = direct(_Step)


def _mirrored(field: VectorField, x: Tensor, direction: State, beta: float) -> PairSystem:
    """What was relaxed, as far as the checks of a shift ask."""
    system = unchecked(System, field=field, x=x, params=(), drive=(), contraction=None)
    one, two = (unchecked(LinearNudge, direction=direction, beta=b) for b in (beta, -beta))
    nudge = unchecked(Opposed, up=one, down=two, asymmetry=None, origin=())
    return unchecked(PairSystem, system=system, nudge=nudge)


def _both(ctx: Any, x: Tensor, params: Params, kept: State, slope: Tensor) -> PairSystem:
    """What was relaxed, whole."""
    step: Step = ctx.step
    direction, _ = normalise((*map(nothing_like, kept[1:-1]), slope.to(x.dtype)))
    both = _mirrored(step.field, x, direction, step.gradient.beta)  # type: ignore[attr-defined]
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
