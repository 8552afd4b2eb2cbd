"""What a compiled training step knows of a model from step to step.

A new kind of network is a `Step` of its own with the two compiled calls, and an entry in
`compiled_step`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from toreqprop.checks import unchecked
from toreqprop.energies import LinearNudge, Opposed, Params, StackEnergy, System, VectorField
from toreqprop.energies.bounded import Layout, laid_out, stays
from toreqprop.energies.system import PairSystem
from toreqprop.energies.tight_ball import TightBall
from toreqprop.gradients.base import measured
from toreqprop.kernels.base import status
from toreqprop.kernels.reference import LARGEST_PUSH
from toreqprop.models.constrained import Constrained, is_watched
from toreqprop.solution import Solution, State

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


class Reading(NamedTuple):
    """What is read out, for compiled code: gain and lift of a `Readout`, its weight and bias, and
    what it says, or in the backward pass the cotangent of that and its two gradients. ``places``
    are the addresses of all."""

    gains: np.ndarray
    places: np.ndarray
    tensors: tuple[Tensor, ...]


NOTHING = Reading(np.ones(2), np.empty(0, np.int64), ())
"""Nobody asks for more than the state."""


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
        self.pairs = self.pairs_of(model, given)
        self.layout = laid_out(tuple(kinds), self.pairs) if kinds else Layout.none()
        numbers = [b.shape[0] * b.shape[1] if self.written else 0 for b in given.balls]
        self.places = (self.layout.total + np.cumsum([0, *numbers])).tolist()
        beta = float(self.gradient.beta)  # type: ignore[attr-defined]
        self.nudge = np.array([beta, self.gradient.coefficient, LARGEST_PUSH])  # type: ignore[attr-defined]
        self.mirrored = mirrored(self.field, given.params[0], (), beta)

    @staticmethod
    @abstractmethod
    def serves(model: EquilibriumModel, given: Matrices) -> bool:
        """Whether the model is of this kind; its gradient is `CenteredEP`."""

    @staticmethod
    def pairs_of(model: EquilibriumModel, given: Matrices) -> int:
        """How many pairs of singular vectors of a coupling are kept from the estimate of its norm:
        more than one where phases begin with them."""
        return 1

    @abstractmethod
    def free(
        self, x: Tensor, params: Params, reading: Reading
    ) -> tuple[Solution, Tensor, np.ndarray]:
        """The free phase, ``scratch``, and what is known of the balls.

        Raises:
            NotServedError: the numbers are such that only the general path can.
        """

    @abstractmethod
    def nudged(
        self, x: Tensor, params: Params, kept: State, slope: Tensor, found: np.ndarray,
        reading: Reading,
    ) -> tuple[Solution | None, list[Tensor], bool]:  # fmt: skip
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

    @staticmethod
    def bounded(found: Solution, bound: Callable[[], Tensor]) -> Solution:
        """With the bound of its error; where nobody has seen it yet it need not be copied."""
        found.__dict__["bound"] = bound
        return found


def mirrored(field: VectorField, x: Tensor, direction: State, beta: float) -> PairSystem:
    """What was relaxed, as far as the checks of a shift ask."""
    system = unchecked(System, field=field, x=x, params=(), drive=(), contraction=None)
    one, two = (unchecked(LinearNudge, direction=direction, beta=b) for b in (beta, -beta))
    nudge = unchecked(Opposed, up=one, down=two, asymmetry=None, origin=())
    return unchecked(PairSystem, system=system, nudge=nudge)


class NotServedError(Exception):
    """The general path has to do it."""
