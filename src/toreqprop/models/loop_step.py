"""The compiled step of one dense layer that feeds back into itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from toreqprop.energies import DenseEnergy, Params, Tanh
from toreqprop.energies.bounded import COLD, FRESH, PROOF_EVERY
from toreqprop.models.whole_step import Matrices, NotServedError, Reading, Step
from toreqprop.solution import Solution, State
from toreqprop.solvers import FixedPoint

if TYPE_CHECKING:
    from toreqprop.models.base import EquilibriumModel


class LoopStep(Step):
    """One tanh layer with a symmetric matrix, relaxed by plain iteration: see
    `kernels.whole_loop`."""

    def __init__(self, model: EquilibriumModel, given: Matrices, dtype: torch.dtype) -> None:
        from toreqprop.kernels import compiled, loops, whole_loop
        from toreqprop.kernels.products import routine

        super().__init__(model, given, dtype)
        self.hidden, self.inputs = self.shapes[0]
        self.slots, self.pair_slots = loops.SLOTS, loops.PAIR_SLOTS
        self.image, self.last = loops.IMAGE, (loops.LAST_STATE, loops.LAST_PRODUCT)
        self.middle, self.half = loops.MIDDLE, loops.HALF
        self.before = (1 + self.slots) * self.hidden
        self.constants = compiled.constants(self.contraction, self.solver.tol, self.hidden, dtype)
        self.code, self.routine = whole_loop, routine

    @staticmethod
    def serves(model: EquilibriumModel, given: Matrices) -> bool:
        field, solver, shapes = model.field, model._solver, [tuple(p.shape) for p in given.params]
        if type(field) is not DenseEnergy or type(field.activation) is not Tanh:
            return False
        if type(solver) is not FixedPoint or solver.damping != 1 or given.inside != (2,):
            return False
        hidden = shapes[0][0]
        return given.balls[0].symmetric and shapes[1:] == [(hidden,), (hidden, hidden)]

    def free(
        self, x: Tensor, params: Params, reading: Reading
    ) -> tuple[Solution, Tensor, np.ndarray]:
        batch = x.shape[0]
        scratch, residual = x.new_empty(self.room(batch)), x.new_empty(batch)
        used = self.used(params, scratch, batch)
        balls = self.ball_places(params, used, scratch, batch)
        found, layout = np.empty((1, 4)), self.layout
        steps, good, finite = self.code.forward(
            self.routine(self.dtype), self._given(x, used, scratch, residual), balls,
            (batch, self.inputs, self.hidden), layout.shapes, layout.radii, COLD, self.constants,
            self.solver.max_steps, found, reading.places, reading.gains,
        )  # fmt: skip
        if steps < 0:
            raise NotServedError
        state = (self._slot(scratch, batch, self.image),)
        return self.solution(state, steps, residual, good, finite, 0), scratch, found

    def _slot(self, scratch: Tensor, batch: int, number: int) -> Tensor:
        """One of the results of `kernels.loops.evaluate`, which lie behind the drive."""
        place = (1 + number) * batch * self.hidden
        return scratch.as_strided((batch, self.hidden), (self.hidden, 1), place)

    def memory_of(self, scratch: Tensor, batch: int) -> tuple[Tensor, ...]:
        return tuple(self._slot(scratch, batch, number) for number in self.last)

    def nudged(
        self, x: Tensor, params: Params, kept: State, slope: Tensor, found: np.ndarray,
        reading: Reading,
    ) -> tuple[Solution | None, list[Tensor], bool]:  # fmt: skip
        scratch, batch, new = kept[0], x.shape[0], x.new_empty
        slope = slope.to(x.dtype).contiguous()
        phases, residual = new(self.pair_slots, batch, self.hidden), new(batch)
        gradients = [new(shape) for shape in self.shapes]
        used = self.used(params, scratch, batch)
        balls = self.ball_places(gradients, used, scratch, batch)
        inside = new(self.shapes[2])
        rest = (residual, slope, phases, residual, *gradients, inside)
        given = self._given(x, used, scratch, *rest)
        steps, good, finite, moved, size, due, _ = self.code.backward(
            self.routine(self.dtype), given, balls, (batch, self.inputs, self.hidden),
            self.layout.shapes, self.constants, self.solver.max_steps, self.nudge, found, FRESH,
            PROOF_EVERY, reading.places, reading.gains,
        )  # fmt: skip
        if not steps:
            return None, gradients, False
        ended = self.solution(
            (phases[self.middle],), steps, residual, good, finite, 0, shift=(phases[self.half],),
            changes=((moved, size),),
        )  # fmt: skip
        return ended, gradients, due

    def _given(self, x: Tensor, used: list[int], scratch: Tensor, *rest: Tensor) -> np.ndarray:
        """The drive is the first of what is kept for each sample; behind it are the slots."""
        begin = scratch.data_ptr()
        places = [x.data_ptr(), *used, begin, begin + self.size * rest[0].shape[0] * self.hidden]
        places += [t.data_ptr() for t in rest]
        return np.array(places, np.int64)
