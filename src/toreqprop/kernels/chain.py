"""Stacks of dense tanh layers, relaxed by passes down and up in compiled code.

A pass down and up needs every coupling once in each direction: what the last pass upward computed
is still right on the way down. Samples that have converged are dropped from the products. Of the
two nudged phases the shift alone is relaxed, around a center that is taken to be as settled as the
free phase left it (its residual ended that phase, and is not measured again): what is measured is
the shift's own change and how far the nudge moves the center, which is settled anew where that is
more than the tolerance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from toreqprop.checks import unchecked
from toreqprop.kernels import chain_phases as phases
from toreqprop.kernels.base import status
from toreqprop.kernels.products import routine
from toreqprop.kernels.reference import ACTIVITY_FLOOR, DRIFT, NUDGE_SLACK, ROUNDING_FLOOR
from toreqprop.solution import Solution, State

RECENTRED = 2
"""How often the center may be settled anew before the general path takes over."""


@dataclass(frozen=True)
class Chain:
    """``s_l = tanh(W_l s_{l−1} + b_l + γ·W_{l+1}ᵀ s_{l+1})`` with the first layer's drive.

    ``weights`` and ``biases`` are those between layers, one less than there are layers; ``memory``
    is how many past passes are extrapolated from.
    """

    drive: Tensor
    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    feedback: float
    memory: int = 0

    def relax(self, start: State | None, *, tol: float, max_steps: int) -> Solution:
        """Passes down and up, each sample until none of its layers changes by more than ``tol``."""
        found = self.drive.new_empty(self._numbers())
        begin = found.view(len(self.drive), -1) if start is None else torch.cat(start, 1)
        residuals = np.zeros((len(self.drive), 2))
        steps, good, finite = phases.relax(
            routine(self.drive.dtype), self.drive.numpy(), begin.numpy(), start is not None,
            *self._given(), self.memory, (tol, *self._floors()), max_steps, found.numpy(),
            residuals,
        )  # fmt: skip
        return self._solution(found, steps, good, finite, residuals)

    def relax_pair(
        self, pushes: list[Tensor | None], free: State, *, tol: float, max_steps: int
    ) -> Solution | None:
        """Both phases under opposite ``pushes`` of preactivations, from the free equilibrium.

        None where the center has to move again and again, at a tolerance below the square of the
        nudge: relaxing both together, as the general path does, is faster then.
        """
        batch, numbers = len(self.drive), self._numbers()
        push, found = (
            self.drive.new_empty(batch, numbers // batch),
            self.drive.new_empty(2, numbers),
        )
        for part, own in zip(push.split_with_sizes(self.widths(), 1), pushes, strict=True):
            if own is not None:
                part.copy_(own)
        residuals = np.zeros((len(self.drive), 2))
        halves, good, finite, restless = phases.relax_pair(
            routine(self.drive.dtype), self.drive.numpy(), push.numpy(),
            np.array([own is not None for own in pushes]), torch.cat(free, 1).numpy(),
            *self._given(), self.memory, (tol, *self._floors(), NUDGE_SLACK), DRIFT, RECENTRED,
            max_steps, found.numpy(), residuals,
        )  # fmt: skip
        if restless:
            return None
        both = self._solution(found[0], (halves + 1) // 2, good, finite, residuals)
        return both.but(shift=self._parts(found[1]))

    def widths(self) -> list[int]:
        """Neurons of each layer."""
        return [self.drive.shape[1], *(len(w) for w in self.weights)]

    def _given(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        """Addresses of the weights, biases (that of the first layer is in its drive), columns of
        the layers, feedback."""
        bias = torch.cat([self.drive.new_zeros(self.drive.shape[1]), *self.biases])
        places = np.array([w.data_ptr() for w in self.weights], np.int64)
        return places, bias.numpy(), _bounds(tuple(self.widths())), float(self.feedback)

    def _floors(self) -> tuple[float, float]:
        """What rounding leaves of a residual; the least activity of a neuron it is relative to."""
        return ROUNDING_FLOOR * torch.finfo(self.drive.dtype).eps, ACTIVITY_FLOOR

    def _numbers(self) -> int:
        """Of all layers and samples."""
        return len(self.drive) * sum(self.widths())

    def _parts(self, blocks: Tensor) -> State:
        """The layers, one block of memory each."""
        batch, widths = len(self.drive), self.widths()
        parts = blocks.split_with_sizes([batch * width for width in widths])
        return tuple(part.view(batch, width) for part, width in zip(parts, widths, strict=True))

    def _solution(
        self, blocks: Tensor, steps: int, good: bool, finite: bool, residuals: np.ndarray
    ) -> Solution:
        """The solution, from the residual and the worst layer of each sample."""
        layer = None
        if not (good and finite):
            worst = int(np.nan_to_num(residuals[:, 0], nan=np.inf).argmax())
            layer = int(residuals[worst, 1])
        return unchecked(
            Solution,
            state=self._parts(blocks),
            steps=steps,
            residual=torch.from_numpy(residuals[:, 0].copy()),
            status=status(good and finite, finite),
            layer=layer,
        )


@lru_cache(maxsize=64)
def _bounds(widths: tuple[int, ...]) -> np.ndarray:
    """First columns of the layers, side by side."""
    return np.cumsum([0, *widths])
