"""The compiled step of a stack of dense layers."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from toreqprop.energies import StackEnergy
from toreqprop.energies.bounded import COLD, FRESH, PROOF_EVERY
from toreqprop.models.ties import Matrices, Ties
from toreqprop.models.whole_step import NotServedError, Nudged, Step
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
        self.neurons, self.top = sum(self.widths[1:]), self.widths[-1]
        self.before, self.above = (
            self.widths[1] + self.neurons,
            np.array(self.inside, np.int64) // 2,
        )
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
        self, x: Tensor, ties: Ties, said: Tensor | None
    ) -> tuple[Solution, Tensor, np.ndarray]:
        batch = x.shape[0]
        scratch = x.new_empty(self.room(batch))
        found, residual = np.empty((len(self.balls), self.columns)), np.zeros(batch)
        places = x.data_ptr(), scratch.data_ptr(), 0 if said is None else said.data_ptr()
        steps, good, finite, layer = self.code.forward(
            self.routine(self.dtype), ties.own, ties.balls, np.array(places, np.int64), self.above,
            self.sizes, self.bounds, self.layout.shapes, self.layout.radii, COLD, self.feedback,
            self.memory, self.constants, self.solver.max_steps, found, residual, ties.gains,
        )  # fmt: skip
        if not steps and self.solver.max_steps:
            raise NotServedError

        def late() -> dict[str, Any]:
            return {
                "state": self.states(scratch, batch),
                "residual": torch.from_numpy(residual),
            }

        return self.solution(late, steps, good, finite, layer, shift=()), scratch, found

    def states(self, scratch: Tensor, batch: int) -> State:
        return self._layers(scratch, batch, self.widths[1])

    def _layers(self, memory: Tensor, batch: int, before: int) -> State:
        """A state that lies in memory, a layer after the other, behind so many numbers for each
        sample."""
        begins = itertools.accumulate(self.widths[1:-1], initial=before)
        offset = memory.storage_offset()
        return tuple(
            memory.as_strided((batch, width), (width, 1), offset + batch * begin)
            for begin, width in zip(begins, self.widths[1:], strict=True)
        )

    def nudged(
        self, x: Tensor, ties: Ties, scratch: Tensor, cotangent: Tensor, found: np.ndarray
    ) -> Nudged:
        batch, before = x.shape[0], 2 * self.widths[-1]  # slope and direction
        work = x.new_empty(batch * (before + 2 * self.neurons))
        gradients = [torch.empty_like(p) for p in ties.params]
        places = [x.data_ptr(), scratch.data_ptr(), cotangent.data_ptr(), work.data_ptr()]
        places += [g.data_ptr() for g in gradients]
        residual, moved = np.zeros(batch), np.zeros((len(self.widths) - 1, 2))
        steps, good, finite, layer, restless, due, _ = self.code.backward(
            self.routine(self.dtype), ties.own, ties.balls, np.array(places, np.int64), self.above,
            self.sizes, self.bounds, self.layout.shapes, self.feedback, self.memory,
            self.constants, self.recentred, self.solver.max_steps, self.nudge, found, FRESH,
            PROOF_EVERY, residual, moved, ties.gains,
        )  # fmt: skip
        if restless or not steps:
            return Nudged(None, [] if restless else gradients, False, work)

        def late() -> dict[str, Any]:
            return {
                "state": self._layers(work, batch, before),
                "shift": self._layers(work, batch, before + self.neurons),
                "residual": torch.from_numpy(residual),
            }

        changes = tuple([tuple(pair) for pair in moved.tolist()])
        ended = self.solution(late, steps, good, finite, layer, changes=changes)
        return Nudged(ended, gradients, due, work)
