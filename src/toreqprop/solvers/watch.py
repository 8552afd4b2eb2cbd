"""When a relaxation is over, and how often that is asked."""

from __future__ import annotations

import torch
from torch import Tensor

from toreqprop.solution import Status
from toreqprop.tracing import pace


class Watch:
    """Whether a relaxation of ``most`` steps at most is over: ``status`` and ``steps`` say how.

    On the CPU it is asked after every step. Elsewhere an answer makes the processor wait until the
    device has done all it was given; so samples that have ended are frozen by masks (`frozen`),
    steps are counted on the device, and both are asked for every few steps (`tracing.pace`): the
    states and the number of steps are the same.
    """

    def __init__(self, like: Tensor, most: int, *, closely: bool = False) -> None:
        self.pace = 1 if closely else pace(like)
        self.most, self.steps, self.status = most, 0, Status.MAX_STEPS
        if self.pace > 1:
            self._lost = torch.zeros((), dtype=torch.bool, device=like.device)
            self._before = torch.zeros((), dtype=torch.int64, device=like.device)

    def over(self, done: Tensor, gap: Tensor) -> bool:
        """After a step: ``done`` (batch,) has converged, ``gap`` is finite where nothing diverged.

        False for a few steps too many where it is not asked for after each.
        """
        self.steps += 1
        if self.pace == 1:
            if bool(done.all()):
                self.status = Status.CONVERGED
            elif not bool(torch.isfinite(gap).all()):
                self.status = Status.DIVERGED
            return self.status is not Status.MAX_STEPS
        settled = done.all()
        self._lost = self._lost | ~torch.isfinite(gap).all()
        self._before = self._before + ~(settled | self._lost)
        if self.steps % self.pace and self.steps < self.most:
            return False
        found = torch.stack([settled.long(), self._lost.long(), self._before])
        converged, lost, before = found.tolist()
        if not (converged or lost):
            return False
        self.steps = before + 1
        self.status = Status.CONVERGED if converged else Status.DIVERGED
        return True

    def frozen(self, done: Tensor) -> Tensor | None:
        """(batch,) the samples that no longer change, all once one has diverged; None for none."""
        if self.pace > 1:
            return done | self._lost
        return done if bool(done.any()) else None
