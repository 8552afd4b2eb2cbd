"""Attention with an energy, one layer of tanh neurons, relaxed in compiled code.

Between the products of a small network Python takes longer than the products: here a phase is one
call. Samples that have converged are dropped. What a phase ends with is the iterate that follows
the one whose residual was measured: the extrapolation costs no product, and is taken only where
the residuals it is made of cancel to less than the measured one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from toreqprop.checks import unchecked
from toreqprop.kernels import attention_phases as phases
from toreqprop.kernels.products import routine
from toreqprop.kernels.reference import ACTIVITY_FLOOR, NUDGE_SLACK, ROUNDING_FLOOR
from toreqprop.solution import Pushes, Solution, State, Status


@dataclass(frozen=True)
class Heads:
    """``u = x + W_qᵀ P k + W_kᵀ Pᵀ q`` with ``P = softmax(q·k + b)``, as in `AttentionEnergy`.

    ``drive`` is x (batch, n, width), ``both`` [W_q; W_k] and ``bias`` (heads, n, n).
    ``memory`` is how many past iterates are extrapolated from, two at most; ``contraction`` what a
    residual is multiplied with.
    """

    drive: Tensor
    bias: Tensor
    both: Tensor
    memory: int = 2
    contraction: float = 1.0

    def relax(self, start: State | None, *, tol: float, max_steps: int) -> Solution | None:
        """The free equilibrium; None where it was not reached: the general path then says why."""
        found = torch.empty_like(self.drive)
        residual = np.zeros(len(self.drive))
        begin = self.drive if start is None else start[0].detach().contiguous()
        steps, good = phases.relax(
            routine(self.drive.dtype), self._rows(self.drive), self._rows(begin), start is not None,
            *self._given(), self.memory, (self.contraction, tol, *self._floors()), max_steps,
            self._rows(found), residual,
        )  # fmt: skip
        return _solution((found,), steps, residual) if good else None

    def relax_pair(
        self,
        pushes: Pushes,
        free: State,
        memory: tuple[Tensor, ...] = (),
        *,
        tol: float,
        max_steps: int,
    ) -> Solution | None:
        """Both phases under opposite pushes from the free equilibrium, as center and shift.

        None where they were not reached, or where the center has to move by more than ``tol``:
        the general path relaxes both together.
        """
        if pushes[0] is None:
            return None
        push = pushes[0][1] * pushes[0][0]
        found = self.drive.new_empty(2, *self.drive.shape)
        residual = np.zeros(len(self.drive))
        steps, good = phases.relax_pair(
            routine(self.drive.dtype), self._rows(self.drive),
            self._rows(free[0].detach().contiguous()), self._rows(push.contiguous()),
            *self._given(), self.memory,
            (self.contraction, tol, *self._floors(), NUDGE_SLACK), max_steps,
            found.numpy().reshape(2, len(self.drive), -1), residual,
        )  # fmt: skip
        return _solution((found[0],), steps, residual, (found[1],)) if good else None

    def contrasts(self, center: Tensor, shift: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """``½[∂Φ/∂θ(s₊) − ∂Φ/∂θ(s₋)]`` of both projections and of the bias, samples weighted."""
        own = torch.cat([center, shift], 1).flatten(0, 1)
        near = own.new_empty(len(own), len(self.both))
        logits = torch.empty_like(self.bias)
        phases.contrasts(
            routine(own.dtype), own.numpy(), weight.numpy(), *self._given(), near.numpy(),
            logits.numpy(),
        )  # fmt: skip
        return near.mT @ own, logits

    def _given(self) -> tuple[int, tuple[int, int, int], np.ndarray]:
        heads, n, _ = self.bias.shape
        shape = heads, len(self.both) // (2 * heads), n
        return self.both.data_ptr(), shape, self.bias.numpy().reshape(heads * n, n)

    def _rows(self, values: Tensor) -> np.ndarray:
        return values.numpy().reshape(len(self.drive), -1)

    def _floors(self) -> tuple[float, float]:
        """What rounding leaves of a residual; the least size it is relative to."""
        eps = torch.finfo(self.drive.dtype).eps
        return ROUNDING_FLOOR * eps, ACTIVITY_FLOOR * self.drive[0].numel() ** 0.5


def _solution(state: State, steps: int, residual: np.ndarray, shift: State = ()) -> Solution:
    return unchecked(
        Solution,
        state=state,
        steps=steps,
        residual=torch.from_numpy(residual),
        status=Status.CONVERGED,
        shift=shift,
    )
