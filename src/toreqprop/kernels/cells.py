"""A map coupled to its neighbourhood, relaxed in compiled code by damped iteration.

A cell of a small map takes less time than the call that computes it: here a phase is one call, and
a sample that has settled takes no more of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.checks import unchecked
from toreqprop.kernels import map_loops
from toreqprop.kernels.reference import ACTIVITY_FLOOR, DRIFT, NUDGE_SLACK, ROUNDING_FLOOR
from toreqprop.solution import Pushes, Solution, State, Status


@dataclass(frozen=True)
class Cells:
    """``s = σ(K ⋆ s + drive)`` with the sigmoid of `energies.Sigmoid`, as in `MapEnergy`.

    ``drive`` is (batch, channels, height, width), ``kernel`` (channels, channels, a, a) with an odd
    a; ``begin`` is what every cell starts at, ``damping`` the share of a step that is taken,
    ``contraction`` what a residual is multiplied with.
    """

    drive: Tensor
    kernel: Tensor
    begin: float = 0.0
    damping: float = 1.0
    contraction: float = 1.0

    def relax(self, start: State | None, *, tol: float, max_steps: int) -> Solution | None:
        """The free phase; None where a number is not finite: the general path then says why."""
        begin = torch.full_like(self.drive, self.begin) if start is None else start[0].detach()
        drive, residual = self._strips(self.drive), np.zeros(len(self.drive))
        found, last = np.empty_like(drive), np.empty_like(drive)
        steps, restless, finite = map_loops.relax(
            drive, self._strips(begin), *self._given(), self._constants(tol), max_steps, found,
            last, residual,
        )  # fmt: skip
        if not finite:
            return None
        return self._solution(found, steps, residual, restless, memory=(self._map(last),))

    def relax_pair(
        self,
        pushes: Pushes,
        free: State,
        memory: tuple[Tensor, ...] = (),
        *,
        tol: float,
        max_steps: int,
    ) -> Solution | None:
        """Both phases under opposite pushes, as center and shift; they go on from the free phase's
        last iterate. None where a number is not finite, or a shift is too small to be squared."""
        if pushes[0] is None:
            return None
        push = pushes[0][1] * pushes[0][0].detach()
        begin = memory[0] if len(memory) == 1 else free[0]
        drive, residual = self._strips(self.drive), np.zeros(len(self.drive))
        found = np.empty((2, *drive.shape), drive.dtype)
        least = torch.finfo(self.drive.dtype).tiny ** 0.5 * 1e4
        steps, restless, finite = map_loops.relax_pair(
            drive, self._strips(begin.detach()), self._strips(push), *self._given(),
            (*self._constants(tol), NUDGE_SLACK, DRIFT, least), max_steps, found, residual,
        )  # fmt: skip
        if not finite:
            return None
        return self._solution(found[0], steps, residual, restless, shift=(self._map(found[1]),))

    def _given(self) -> tuple[np.ndarray, np.ndarray, int]:
        """Kernel, mask, and how long a row of a strip is."""
        height, width = self.drive.shape[2:]
        border = self.kernel.shape[-1] - 1
        cells = F.pad(self.drive.new_ones(height, width), (0, border))
        return self.kernel.detach().contiguous().numpy(), cells.flatten().numpy(), width + border

    def _strips(self, values: Tensor) -> np.ndarray:
        padded = F.pad(values.detach(), (0, self.kernel.shape[-1] - 1))
        return padded.flatten(2).contiguous().numpy()  # else it is compiled for this layout as well

    def _map(self, strips: np.ndarray) -> Tensor:
        height, width = self.drive.shape[2:]
        rows = torch.from_numpy(strips).unflatten(-1, (height, -1))
        return rows[..., :width].contiguous()

    def _constants(self, tol: float) -> tuple[float, float, float, float, float]:
        """What a step and a residual need; at last what rounding leaves of one, and the least size
        it is relative to."""
        rounding = ROUNDING_FLOOR * torch.finfo(self.drive.dtype).eps
        floor = ACTIVITY_FLOOR * self.drive[0].numel() ** 0.5
        return float(self.damping), self.contraction, tol, rounding, floor

    def _solution(
        self,
        found: np.ndarray,
        steps: int,
        residual: np.ndarray,
        restless: int,
        shift: State = (),
        memory: tuple[Tensor, ...] = (),
    ) -> Solution:
        return unchecked(
            Solution,
            state=(self._map(found),),
            steps=steps,
            residual=torch.from_numpy(residual),
            status=Status.MAX_STEPS if restless else Status.CONVERGED,
            layer=0 if restless else None,
            shift=shift,
            memory=memory,
        )
