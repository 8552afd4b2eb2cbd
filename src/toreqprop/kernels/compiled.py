"""The kernel compiled by Numba: one pass over memory between two matrix products.

Between products one loop adds the drive, applies tanh, measures the residual, sets converged
samples aside and packs the others, so that the next product only has rows that still need it. A
phase is one call.
"""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from toreqprop.checks import unchecked
from toreqprop.kernels import conjugate_loops, conjugate_phases, loop_phases, loops
from toreqprop.kernels.base import Kernel, status
from toreqprop.kernels.products import routine
from toreqprop.kernels.reference import ACTIVITY_FLOOR, DRIFT, NUDGE_SLACK, ROUNDING_FLOOR
from toreqprop.solution import Solution


class NumbaKernel(Kernel):
    """Compiled on first use, then read from Numba's cache; needs the extra ``compiled``.

    By plain iteration, or ``conjugate``: by conjugate gradients, to the same equilibria in fewer
    products.
    """

    name: ClassVar[str] = "numba"

    def __init__(self, conjugate: bool = False) -> None:
        _keep_freed_memory()
        self._phases: Any = conjugate_phases if conjugate else loop_phases
        self._pair_slots = conjugate_loops.PAIR_SLOTS if conjugate else loops.PAIR_SLOTS

    def relax(
        self,
        weight: Tensor,
        drive: Tensor,
        start: Tensor | None,
        *,
        tol: float,
        max_steps: int,
        contraction: float | None,
        record: list[tuple[Tensor, ...]] | None = None,
    ) -> Solution:
        # One allocation: it is faster, and its layout is what `loops` says.
        buffer = drive.new_empty(loops.SLOTS, *drive.shape)
        residual = drive.new_empty(drive.shape[0])
        history = drive.new_empty(0 if record is None else max_steps, *drive.shape)
        begin = drive.new_empty(0, drive.shape[1]) if start is None else start.contiguous()
        steps, good, finite = self._phases.relax(
            routine(drive.dtype), weight.contiguous().numpy(), drive.contiguous().numpy(),
            begin.numpy(), constants(contraction, tol, drive.shape[1], drive.dtype), max_steps,
            buffer.numpy(), residual.numpy(), history.numpy(),
        )  # fmt: skip
        if record is not None:
            record += [(image,) for image in history[:steps]]
        return unchecked(
            Solution,
            state=(buffer[loops.IMAGE],),
            steps=steps,
            residual=residual,
            status=status(good and finite, finite),
            layer=None if good and finite else 0,
            shift=(),
            memory=(buffer[loops.LAST_STATE], buffer[loops.LAST_PRODUCT]),
        )

    def relax_pair(
        self,
        weight: Tensor,
        drive: Tensor,
        push: Tensor,
        memory: tuple[Tensor, Tensor],
        *,
        tol: float,
        max_steps: int,
        contraction: float | None,
        strength: float = 1.0,
        image: Tensor | None = None,
        record: list[tuple[Tensor, ...]] | None = None,
    ) -> Solution:
        batch, driven = drive.shape[0], drive.contiguous().numpy()
        buffer, residual = drive.new_empty(self._pair_slots, *drive.shape), drive.new_empty(batch)
        history = drive.new_empty(0 if record is None else 2 * max_steps, *drive.shape)
        center, product = (t.contiguous().numpy() for t in memory)
        if image is None:
            images = np.empty_like(center)
            loops.images(driven, product, images)
        else:
            images = image.contiguous().numpy()
        steps, good, finite, moved, size = self._phases.relax_pair(
            routine(drive.dtype), weight.contiguous().numpy(), driven, push.contiguous().numpy(),
            float(strength), center, images,
            constants(contraction, tol, drive.shape[1], drive.dtype), max_steps, buffer.numpy(),
            residual.numpy(), history.numpy(),
        )  # fmt: skip
        if record is not None:
            record += [(history[k], history[k + 1]) for k in range(0, 2 * steps, 2)]
        return unchecked(
            Solution,
            state=(buffer[loops.MIDDLE],),
            steps=steps,
            residual=residual,
            status=status(good and finite, finite),
            shift=(buffer[loops.HALF],),
            layer=None if good and finite else 0,
            changes=() if image is None else ((moved, size),),
        )


def _keep_freed_memory() -> None:
    """Let the C library keep what a training step frees, for the next one.

    glibc gives memory back to the system above a limit that is twice the largest block freed so
    far, and a step with 1024 hidden neurons then spends a fifth of its time on page faults. One
    large block, freed without having been touched, raises that limit; elsewhere it does nothing.
    """
    torch.empty(_LARGEST_ADAPTIVE_BLOCK, dtype=torch.uint8)


_LARGEST_ADAPTIVE_BLOCK = (32 << 20) - (64 << 10)
"""Bytes; just below the size up to which glibc adapts."""


@cache
def constants(contraction: float | None, tol: float, hidden: int, dtype: torch.dtype) -> np.ndarray:
    """Contraction factor, tol, rounding floor, activity floor, slack of a shift, drift."""
    return np.array(
        [
            1.0 if contraction is None else contraction,
            tol,
            ROUNDING_FLOOR * torch.finfo(dtype).eps,
            ACTIVITY_FLOOR * hidden**0.5,
            NUDGE_SLACK,
            DRIFT,
        ]
    )
