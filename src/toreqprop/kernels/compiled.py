"""The kernel compiled by Numba: one pass over memory between two matrix products.

Products stay with PyTorch. Between them one compiled loop adds the drive, applies tanh, measures
the residual, sets converged samples aside and packs the others, so that the next product only has
rows that still need it.
"""

from __future__ import annotations

from functools import cache
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from toreqprop.checks import unchecked
from toreqprop.kernels import loops
from toreqprop.kernels.base import Kernel, status
from toreqprop.kernels.reference import ACTIVITY_FLOOR, DRIFT, NUDGE_SLACK, ROUNDING_FLOOR
from toreqprop.kernels.vectors import distances
from toreqprop.solution import Solution


class NumbaKernel(Kernel):
    """Compiled on first use, then read from Numba's cache; needs the extra ``compiled``."""

    name: ClassVar[str] = "numba"

    def __init__(self) -> None:
        _keep_freed_memory()

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
        # One allocation: it is faster, and its layout is what `loops.evaluate` expects.
        buffer = drive.new_empty(loops.SLOTS, *drive.shape)
        residual = drive.new_empty(drive.shape[0])
        packed, work, image, last, product = buffer.unbind()
        places, measured, driven = buffer.numpy(), residual.numpy(), drive.numpy()
        constants = _constants(contraction, tol, drive.shape[1], drive.dtype)
        index = np.empty(drive.shape[0], np.int64)
        loops.activate(driven, places[loops.PACKED], index)
        if start is not None:
            packed.copy_(start)
        torch.mm(packed, weight, out=work)
        rows = drive.shape[0]
        for steps in range(1, max_steps + 1):
            rows, lost = loops.evaluate(
                driven, places, measured, index, rows, constants, steps == max_steps
            )
            if record is not None:
                record.append((_snapshot(image, packed, index, max(rows, 0)),))
            if rows <= 0 or lost:
                break
            if rows == len(drive):
                torch.mm(packed, weight, out=work)
            else:
                torch.mm(packed[:rows], weight, out=work[:rows])
        return unchecked(
            Solution,
            state=(image,),
            steps=steps,
            residual=residual,
            status=status(rows == 0, not lost),
            layer=None if rows == 0 else 0,
            memory=(last, product),
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
        batch = drive.shape[0]
        buffer, residual = drive.new_empty(loops.PAIR_SLOTS, *drive.shape), drive.new_empty(batch)
        places, measured = buffer.numpy(), residual.numpy()
        pushed, center = push.numpy(), memory[0].numpy()
        if image is None:
            images = np.empty_like(center)
            loops.images(drive.numpy(), memory[1].numpy(), images)
        else:
            images = image.numpy()
        index, astray = np.empty((2, batch), np.int64)
        constants = _constants(contraction, tol, drive.shape[1], drive.dtype)
        middle, half, shift, moved = buffer.unbind()
        rows, free, drifts = batch, images, None
        for steps in range(1, max_steps + 1):
            rows, lost, drifted = loops.evaluate_pair(
                pushed, strength, center, images, places, measured, index, astray, rows,
                constants, steps == 1, steps == max_steps,
            )  # fmt: skip
            if record is not None:
                record.append((middle.clone(), half.clone()))
            if rows <= 0 or lost:
                break
            if rows == batch:
                torch.mm(shift, weight, out=moved)
            else:
                torch.mm(shift[:rows], weight, out=moved[:rows])
            if drifted:
                if drifts is None:  # the start belongs to the caller
                    drifts = drive.new_empty(loops.DRIFT_SLOTS, *drive.shape)
                    drifting = drifts.numpy()
                    drifting[loops.CENTER], drifting[loops.IMAGES] = center, images
                    center, images = drifting[loops.CENTER], drifting[loops.IMAGES]
                loops.gather(places[loops.MIDDLE], astray, drifted, drifting[loops.STRAY])
                stray, products = drifts[loops.STRAY, :drifted], drifts[loops.STRAY_PRODUCT]
                torch.mm(stray, weight, out=products[:drifted])
                loops.recentre(drive.numpy(), drifting, astray, drifted)
        moves = (distances(places[loops.MIDDLE], free, places[loops.HALF]),)
        return unchecked(
            Solution,
            state=(middle,),
            steps=steps,
            residual=residual,
            status=status(rows == 0, not lost),
            shift=(half,),
            layer=None if rows == 0 else 0,
            changes=() if image is None else moves,
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
def _constants(
    contraction: float | None, tol: float, hidden: int, dtype: torch.dtype
) -> np.ndarray:
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


def _snapshot(image: Tensor, packed: Tensor, index: np.ndarray, rows: int) -> Tensor:
    """Every sample's latest image: of those set aside, and of those still packed."""
    found = image.clone()
    found[torch.from_numpy(index[:rows])] = packed[:rows]
    return found
