"""Stacks of dense tanh layers, relaxed by passes down and up in compiled code.

A pass down and up needs every coupling once in each direction: what the last pass upward computed
is still right on the way down. Samples that have converged are dropped from the products. Of the
two nudged phases the shift alone is relaxed, around a center that is taken to be as settled as the
free phase left it (its residual ended that phase, and is not measured again): what is measured is
the shift's own change and how far the nudge moves the center, which is settled anew where that is
more than the tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toreqprop.checks import unchecked
from toreqprop.kernels import chain_phases as phases
from toreqprop.kernels.base import status
from toreqprop.kernels.chain_ahead import nothing_slow
from toreqprop.kernels.products import routine
from toreqprop.kernels.reference import ACTIVITY_FLOOR, DRIFT, NUDGE_SLACK, ROUNDING_FLOOR
from toreqprop.solution import Pushes, Solution, State, Status

RECENTRED = 2
"""How often the center may be settled anew before the general path takes over."""


@dataclass(frozen=True)
class Chain:
    """``s_l = tanh(W_l s_{l−1} + b_l + γ·W_{l+1}ᵀ s_{l+1})`` with the first layer's drive.

    ``weights`` and ``biases`` are those between layers, one less than there are layers; ``memory``
    is how many past passes may be extrapolated from: of a free phase one tells as much as all.
    """

    drive: Tensor
    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    feedback: float
    memory: int = 0

    def relax(self, start: State | None, *, tol: float, max_steps: int) -> Solution:
        """Passes down and up, each sample until none of its layers changes by more than ``tol``."""
        drive = self.drive
        begin = () if start is None else [s.detach().contiguous() for s in start]
        widths, residual = self._widths(), np.zeros(drive.shape[0])
        found = _empty(drive, widths)
        places = _at((*self.weights, *self.biases, *found, *begin))
        steps, good, finite, layer = phases.relax(
            routine(drive.dtype), drive.numpy(), places, _ones(len(widths)),
            *_unknown(len(widths) - 1), _bounds(widths), self.feedback, self.memory,
            constants(tol, drive.dtype), max_steps, residual,
        )  # fmt: skip
        return _solution(found, steps, good, finite, layer, residual, shift=())

    def relax_pair(
        self,
        pushes: Pushes,
        free: State,
        memory: tuple[Tensor, ...] = (),
        *,
        tol: float,
        max_steps: int,
    ) -> Solution | None:
        """Both phases under opposite ``pushes`` of preactivations, from the free equilibrium.

        None where the center has to move again and again, at a tolerance below the square of the
        nudge: relaxing both together, as the general path does, is faster then.
        """
        drive, layers = self.drive, len(free)
        known = [s.contiguous() for s in free]
        forces = [known[0] if p is None else p[0].contiguous() for p in pushes]
        shares = np.array([0.0 if push is None else push[1] for push in pushes])
        widths = self._widths()
        center, shift = _empty(drive, widths), _empty(drive, widths)
        residual, moved = np.zeros(drive.shape[0]), np.zeros((layers, 2))
        places = _at((*self.weights, *self.biases, *forces, *known, *center, *shift))
        passes, good, finite, layer, restless = phases.relax_pair(
            routine(drive.dtype), drive.numpy(), places, _ones(layers), *_unknown(layers - 1),
            shares, _bounds(widths), self.feedback, self.memory, constants(tol, drive.dtype),
            RECENTRED, max_steps, residual, moved,
        )  # fmt: skip
        if restless:
            return None
        return _solution(
            center, passes, good, finite, layer, residual,
            shift=shift, changes=tuple(map(tuple, moved.tolist())),
        )  # fmt: skip

    def _widths(self) -> tuple[int, ...]:
        return (self.drive.shape[1], *[b.shape[0] for b in self.biases])


def _empty(like: Tensor, widths: tuple[int, ...]) -> State:
    """Memory for all layers."""
    batch, new = like.shape[0], like.new_empty
    return tuple([new(batch, width) for width in widths])


def _at(tensors: Sequence[Tensor]) -> np.ndarray:
    """The addresses of tensors without gaps."""
    return np.array([t.data_ptr() for t in tensors], np.int64)


def _solution(
    state: State,
    steps: int,
    good: bool,
    finite: bool,
    layer: int,
    residual: np.ndarray,
    **more: Any,
) -> Solution:
    ended = status(good and finite, finite)
    return unchecked(
        Solution,
        state=state,
        steps=steps,
        residual=torch.from_numpy(residual),
        status=ended,
        layer=None if ended is Status.CONVERGED else layer,
        **more,
    )


@lru_cache(maxsize=64)
def constants(tol: float, dtype: torch.dtype) -> np.ndarray:
    """The tolerance; what rounding leaves of a residual; the least activity of a neuron it is
    relative to; slack of a shift, and drift of its center."""
    rounding = ROUNDING_FLOOR * torch.finfo(dtype).eps
    return np.array([tol, rounding, ACTIVITY_FLOOR, NUDGE_SLACK, DRIFT])


@lru_cache(maxsize=64)
def _unknown(couplings: int) -> tuple[np.ndarray, np.ndarray]:
    """The weights come without their balls: phases begin plainly."""
    return nothing_slow(couplings), np.zeros((couplings, 2), np.int64)


@lru_cache(maxsize=64)
def _bounds(widths: tuple[int, ...]) -> np.ndarray:
    """First columns of the layers, side by side."""
    return np.cumsum([0, *widths])


@lru_cache(maxsize=64)
def _ones(layers: int) -> np.ndarray:
    """What the weights between so many layers are multiplied with, where they are used as given."""
    return np.ones(layers - 1)
