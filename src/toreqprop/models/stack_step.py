"""The compiled step of a stack of dense layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Tensor

from toreqprop.energies import Params, StackEnergy
from toreqprop.energies.bounded import COLD, FRESH, PROOF_EVERY
from toreqprop.models.whole_step import Matrices, NotServedError, Reading, Step
from toreqprop.solution import Solution, State
from toreqprop.solvers.relaxation import memory_of_passes

if TYPE_CHECKING:
    from toreqprop.models.base import EquilibriumModel


MOST_PAIRS = 16
"""Singular vectors of a coupling that phases begin with, at most: as many as the block that its
norm is estimated from has after two rounds."""


class StackStep(Step):
    """Tanh layers joined by matrices, relaxed by passes: see `kernels.whole_stack`."""

    written: ClassVar[bool] = False

    def __init__(self, model: EquilibriumModel, given: Matrices, dtype: torch.dtype) -> None:
        from toreqprop.kernels import balls, chain, whole_stack
        from toreqprop.kernels.products import routine

        super().__init__(model, given, dtype)
        self.widths = (self.shapes[0][1], *[shape[0] for shape in self.shapes[1::2]])
        self.before, self.above = self.widths[1], np.array(self.inside, np.int64) // 2
        self.sizes, self.bounds = np.array(self.widths), np.cumsum([0, *self.widths[1:]])
        self.feedback = float(self.field.feedback)  # type: ignore[attr-defined]
        self.memory = memory_of_passes(self.solver)
        self.constants = chain.constants(self.solver.tol, dtype)
        self.columns = balls.PAIRS + self.pairs if self.pairs > 1 else balls.OTHERS
        self.recentred, self.code, self.routine = chain.RECENTRED, whole_stack, routine

    @staticmethod
    def serves(model: EquilibriumModel, given: Matrices) -> bool:
        field, shapes = model.field, [tuple(p.shape) for p in given.params]
        if type(field) is not StackEnergy or not field.is_dense:
            return False
        if memory_of_passes(model._solver) is None or len(shapes) != 2 * len(field.couplings):
            return False
        if any(ball.symmetric for ball in given.balls):
            return False
        chain = zip(shapes[0::2], shapes[1::2], strict=True)
        below = shapes[0][1]
        for weight, bias in chain:
            if weight != (bias[0], below):
                return False
            below = bias[0]
        return True

    @staticmethod
    def pairs_of(model: EquilibriumModel, given: Matrices) -> int:
        field, balls = model.field, given.balls
        largest = max([ball.radius for ball in balls], default=0.0)
        # What comes back once around is less than what may be left: there is not much to sum.
        if not balls or field.feedback * largest**2 <= model._solver.tol:  # type: ignore[attr-defined]
            return 1
        return min([MOST_PAIRS, *[min(ball.shape) for ball in balls]])

    def free(
        self, x: Tensor, params: Params, reading: Reading
    ) -> tuple[Solution, Tensor, np.ndarray]:
        batch, new = x.shape[0], x.new_empty
        scratch = new(self.room(batch))
        state = tuple([new(batch, width) for width in self.widths[1:]])
        used = self.used(params, scratch, batch)
        balls = self.ball_places(params, used, scratch, batch)
        found, residual = np.empty((len(self.balls), self.columns)), np.zeros(batch)
        steps, good, finite, layer = self.code.forward(
            self.routine(self.dtype), self._given(x, used, scratch, state), balls, self.above,
            self.sizes, self.bounds, self.layout.shapes, self.layout.radii, COLD, self.feedback,
            self.memory, self.constants, self.solver.max_steps, found, residual, reading.places,
            reading.gains,
        )  # fmt: skip
        if not steps and self.solver.max_steps:
            raise NotServedError
        ended = self.solution(state, steps, torch.from_numpy(residual), good, finite, layer)
        return ended, scratch, found

    def nudged(
        self, x: Tensor, params: Params, kept: State, slope: Tensor, found: np.ndarray,
        reading: Reading,
    ) -> tuple[Solution | None, list[Tensor], bool]:  # fmt: skip
        (scratch, *state), batch, new = kept, x.shape[0], x.new_empty
        slope = slope.to(x.dtype).contiguous()
        direction = torch.empty_like(slope)
        center = tuple([new(batch, width) for width in self.widths[1:]])
        shift = tuple([new(batch, width) for width in self.widths[1:]])
        gradients = [new(shape) for shape in self.shapes]
        used = self.used(params, scratch, batch)
        balls = self.ball_places(gradients, used, scratch, batch)
        for k in range(len(self.balls)):
            if found[k, 2]:
                balls[k, 7] = balls[k, 0]  # the slope behind a ball takes the gradient's place
        given = self._given(
            x, used, scratch, (*state, slope, direction, *center, *shift, *gradients)
        )
        residual, moved = np.zeros(batch), np.zeros((len(state), 2))
        steps, good, finite, layer, restless, due, _ = self.code.backward(
            self.routine(self.dtype), given, balls, self.above, self.sizes, self.bounds,
            self.layout.shapes, self.feedback, self.memory, self.constants, self.recentred,
            self.solver.max_steps, self.nudge, found, FRESH, PROOF_EVERY, residual, moved,
            reading.places, reading.gains,
        )  # fmt: skip
        if restless or not steps:
            return None, [] if restless else gradients, False
        changes = tuple([tuple(pair) for pair in moved.tolist()])
        ended = self.solution(
            center, steps, torch.from_numpy(residual), good, finite, layer, shift=shift,
            changes=changes,
        )  # fmt: skip
        return ended, gradients, due

    def _given(
        self, x: Tensor, used: list[int], scratch: Tensor, rest: tuple[Tensor, ...]
    ) -> np.ndarray:
        places = [x.data_ptr(), *used[0::2], *used[1::2], scratch.data_ptr()]
        places += [t.data_ptr() for t in rest]
        return np.array(places, np.int64)
