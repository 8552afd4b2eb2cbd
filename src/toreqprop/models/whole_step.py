"""What a compiled training step knows of a model from step to step.

A new kind of network is a `Step` of its own with the two compiled calls, and an entry in
`compiled_step`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from toreqprop.checks import unchecked
from toreqprop.energies import LinearNudge, Opposed, Params, StackEnergy, System, VectorField
from toreqprop.energies.bounded import Layout, laid_out
from toreqprop.energies.system import PairSystem
from toreqprop.gradients.base import measured
from toreqprop.kernels.base import status
from toreqprop.kernels.reference import LARGEST_PUSH
from toreqprop.models.readout import Readout
from toreqprop.models.ties import Matrices, Ties
from toreqprop.solution import Solution, State

if TYPE_CHECKING:
    from toreqprop.models.base import EquilibriumModel


class Nudged(NamedTuple):
    """What a backward pass found: how the phases ended, the gradients of the ties' parameters,
    whether a proof is due, and memory that begins with the slope of the top layer.

    No solution where the general path has to find it, and no gradients where it is to do so without
    compiled code.
    """

    solution: Solution | None
    gradients: list[Tensor]
    due: bool
    work: Tensor


class Step(ABC):
    """All of a model that stays from step to step, and its two calls.

    ``scratch`` is memory of the forward pass that the backward pass needs: ``before`` numbers for
    each sample, the vectors of the norms, and the bounded weights, where these are ``written`` and
    not just a factor at products. ``found`` is what is known of the balls; ``top`` how many neurons
    are read.
    """

    before: int
    top: int
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
        self._ties: dict[bool, Ties] = {}

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
        self, x: Tensor, ties: Ties, said: Tensor | None
    ) -> tuple[Solution, Tensor, np.ndarray]:
        """The free phase, ``scratch``, and what is known of the balls; ``said`` is filled with what
        is read out.

        Raises:
            NotServedError: the numbers are such that only the general path can.
        """

    @abstractmethod
    def nudged(
        self, x: Tensor, ties: Ties, scratch: Tensor, cotangent: Tensor, found: np.ndarray
    ) -> Nudged:
        """Both nudged phases and all gradients under the cotangent of what was read, or else of the
        top layer."""

    @abstractmethod
    def states(self, scratch: Tensor, batch: int) -> State:
        """The layers as the free phase left them."""

    def memory_of(self, scratch: Tensor, batch: int) -> tuple[Tensor, ...]:
        """What the free phase's solution would know on the general path."""
        return ()

    def input_gradient(self, params: Params, slope: Tensor, shift: Tensor) -> Tensor:
        """That of the input, from the lowest layer's shift: few ask for it."""
        field, coefficient = self.field, self.gradient.coefficient  # type: ignore[attr-defined]
        heat = field.temperature(0) if isinstance(field, StackEnergy) else 1.0
        weight = measured((slope.to(shift.dtype),), coefficient)[1]
        return (-heat * weight).unsqueeze(1) * (shift @ params[0].detach())

    def holds(self, model: EquilibriumModel, dtype: torch.dtype) -> bool:
        """Whether this is how the model is set now. What it is made of is for its ties."""
        return (
            self.solver is model._solver
            and self.gradient is model._gradient
            and self.field is model.field
            and self.dtype is dtype
            and self.kernel == model._kernel
            and self.contraction == model.residual_factor()
        )

    def ties(self, layers: tuple[nn.Module, ...], readout: Readout | None) -> Ties | None:
        """Where parameters and buffers are now; None where this step is not for them."""
        reads = readout is not None
        known = self._ties.get(reads)
        same = known is not None and known.layers == layers and known.readout == readout
        if known is not None and same and known.hold():
            return known
        found = Ties.of(
            layers, readout, self.dtype, self.layout, self.places if self.written else None
        )
        if found is None or not self._is_made_of(found.given) or not self._is_read_by(found):
            return None
        self._ties[reads] = found
        return found

    def _is_made_of(self, given: Matrices) -> bool:
        return (
            self.balls == given.balls
            and self.shapes == tuple([p.shape for p in given.params])
            and self.radii == tuple([ball.radius for ball in given.balls])
        )

    def _is_read_by(self, ties: Ties) -> bool:
        """Whether a readout, if there is one, takes the neurons of the top layer."""
        if ties.readout is None:
            return True
        weight, bias = ties.params[-2:]
        return bias.dim() == 1 and tuple(weight.shape) == (len(bias), self.top)

    def room(self, batch: int) -> int:
        """Numbers of ``scratch``."""
        return batch * self.before + self.places[-1]

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

    @staticmethod
    def solution(
        late: Callable[[], dict[str, Any]], steps: int, good: bool, finite: bool, layer: int,
        **more: Any,
    ) -> Solution:  # fmt: skip
        """What a phase ended with; ``late`` makes what few look at of compiled code's memory."""
        good = good and finite
        return unchecked(
            Solution,
            late=late,
            steps=steps,
            status=status(good, finite),
            layer=None if good else layer,
            memory=(),
            **more,
        )


def mirrored(field: VectorField, x: Tensor, direction: State, beta: float) -> PairSystem:
    """What was relaxed, as far as the checks of a shift ask."""
    system = unchecked(System, field=field, x=x, params=(), drive=(), contraction=None)
    one, two = (unchecked(LinearNudge, direction=direction, beta=b) for b in (beta, -beta))
    nudge = unchecked(Opposed, up=one, down=two, asymmetry=None, origin=())
    return unchecked(PairSystem, system=system, nudge=nudge)


class NotServedError(Exception):
    """The general path has to do it."""
