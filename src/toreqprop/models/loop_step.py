"""The compiled step of one dense layer that feeds back into itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from toreqprop.energies import DenseEnergy, Tanh
from toreqprop.energies.bounded import COLD, FRESH, PROOF_EVERY
from toreqprop.models.ties import Matrices, Ties
from toreqprop.models.whole_step import NotServedError, Nudged, Step
from toreqprop.solution import Solution, State
from toreqprop.solvers import FixedPoint
from toreqprop.solvers.relaxation import is_extrapolation

if TYPE_CHECKING:
    from toreqprop.models.base import EquilibriumModel


class LoopStep(Step):
    """One tanh layer with a symmetric matrix, settled by plain iteration or by conjugate gradients:
    see `kernels.whole_loop`."""

    def __init__(self, model: EquilibriumModel, given: Matrices, dtype: torch.dtype) -> None:
        from toreqprop.kernels import compiled, conjugate_loops, loops, whole_loop
        from toreqprop.kernels.products import routine

        super().__init__(model, given, dtype)
        self.hidden, self.inputs = self.shapes[0]
        self.top = self.hidden
        self.conjugate = is_extrapolation(self.solver)
        self.slots = loops.SLOTS
        self.pair_slots = conjugate_loops.PAIR_SLOTS if self.conjugate else loops.PAIR_SLOTS
        self.image, self.last = loops.IMAGE, (loops.LAST_STATE, loops.LAST_PRODUCT)
        self.middle, self.half = loops.MIDDLE, loops.HALF
        self.before = (1 + self.slots) * self.hidden + 1
        self.constants = compiled.constants(self.contraction, self.solver.tol, self.hidden, dtype)
        self.code, self.routine = whole_loop, routine

    @staticmethod
    def serves(model: EquilibriumModel, given: Matrices) -> bool:
        field, solver, shapes = model.field, model._solver, [tuple(p.shape) for p in given.params]
        if type(field) is not DenseEnergy or type(field.activation) is not Tanh:
            return False
        plain = type(solver) is FixedPoint and solver.damping == 1
        if not (plain or is_extrapolation(solver)) or given.inside != (2,):
            return False
        hidden = shapes[0][0]
        return given.balls[0].symmetric and shapes[1:] == [(hidden,), (hidden, hidden)]

    def free(
        self, x: Tensor, ties: Ties, said: Tensor | None
    ) -> tuple[Solution, Tensor, np.ndarray]:
        batch = x.shape[0]
        scratch, found = x.new_empty(self.room(batch)), np.empty((1, 4))
        places = x.data_ptr(), scratch.data_ptr(), 0 if said is None else said.data_ptr()
        steps, good, finite = self.code.forward(
            self.routine(self.dtype), ties.own, ties.balls, np.array(places, np.int64),
            (batch, self.inputs, self.hidden), self.layout.shapes, self.layout.radii, COLD,
            self.constants, self.solver.max_steps, found, ties.gains, self.conjugate,
        )  # fmt: skip
        if steps < 0:
            raise NotServedError

        def late() -> dict[str, Any]:
            place = batch * (self.before - 1)
            return {
                "state": self.states(scratch, batch),
                "residual": scratch.narrow(0, place, batch),
            }

        return self.solution(late, steps, good, finite, 0, shift=()), scratch, found

    def _slot(self, memory: Tensor, batch: int, number: int) -> Tensor:
        """One of the rooms for a state, which lie one behind the other."""
        place = memory.storage_offset() + number * batch * self.hidden
        return memory.as_strided((batch, self.hidden), (self.hidden, 1), place)

    def states(self, scratch: Tensor, batch: int) -> State:
        return (self._slot(scratch, batch, 1 + self.image),)

    def memory_of(self, scratch: Tensor, batch: int) -> tuple[Tensor, ...]:
        return tuple(self._slot(scratch, batch, 1 + number) for number in self.last)

    def nudged(
        self, x: Tensor, ties: Ties, scratch: Tensor, cotangent: Tensor, found: np.ndarray
    ) -> Nudged:
        batch, hidden, before = x.shape[0], self.hidden, 2  # slope and direction
        end = batch * (before + self.pair_slots) * hidden
        work = x.new_empty(end + batch + hidden * hidden)
        gradients = [torch.empty_like(p) for p in ties.params]
        places = [x.data_ptr(), scratch.data_ptr(), cotangent.data_ptr(), work.data_ptr()]
        places += [g.data_ptr() for g in gradients]
        steps, good, finite, moved, size, due, _ = self.code.backward(
            self.routine(self.dtype), ties.own, ties.balls, np.array(places, np.int64),
            (batch, self.inputs, hidden), self.layout.shapes, self.constants,
            self.solver.max_steps, self.nudge, found, FRESH, PROOF_EVERY, ties.gains,
            self.conjugate,
        )  # fmt: skip
        if not steps:
            return Nudged(None, gradients, False, work)

        def late() -> dict[str, Any]:
            return {
                "state": (self._slot(work, batch, before + self.middle),),
                "shift": (self._slot(work, batch, before + self.half),),
                "residual": work.narrow(0, end, batch),
            }

        ended = self.solution(late, steps, good, finite, 0, changes=((moved, size),))
        return Nudged(ended, gradients, due, work)
