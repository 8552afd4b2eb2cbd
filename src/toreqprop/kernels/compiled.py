"""The compiled kernel: PyTorch's matrix products, Numba for everything between them.

One pass over the activities evaluates tanh, measures the residual, sets converged samples aside
and packs the others, so that the next product only has rows that still need it.
"""

from __future__ import annotations

from functools import cache
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from toreqprop.kernels import loops
from toreqprop.kernels.base import Kernel, Limits, Pair, Relaxed
from toreqprop.kernels.reference import ACTIVITY_FLOOR, DRIFT, NUDGE_SLACK, ROUNDING_FLOOR


class NumbaKernel(Kernel):
    """Compiled on first use, then read from Numba's cache; needs the extra ``compiled``."""

    name: ClassVar[str] = "numba"

    def __init__(self) -> None:
        _keep_freed_memory()

    def relax(
        self,
        weight: Tensor,
        drive: Tensor,
        state: Tensor | None,
        product: Tensor | None,
        limits: Limits,
        *,
        scale: Tensor | None = None,
        origin: Tensor | None = None,
        keep: bool = True,
        record: list[Tensor] | None = None,
    ) -> Relaxed:
        # One allocation: it is faster, and its layout is what `loops.evaluate` expects.
        buffer = drive.new_empty(loops.SLOTS if keep else loops.SLOTS - 2, *drive.shape)
        figures = drive.new_empty(3, drive.shape[0])
        packed, work, image = buffer[loops.PACKED], buffer[loops.WORK], buffer[loops.IMAGE]
        places, measured, driven = buffer.numpy(), figures.numpy(), drive.numpy()
        constants = _constants(limits, drive.shape[1], drive.dtype)
        index = np.arange(drive.shape[0])
        rule, against = loops.ACTIVITY, driven
        if origin is not None:
            rule, against = loops.MOVED, origin.numpy()
        elif scale is not None:
            rule = loops.GIVEN
            figures[2].copy_(scale)
        if state is None:
            loops.activate(driven, places[loops.PACKED])
            state = packed
        if product is None:
            product = torch.mm(state, weight, out=work)
        rows, source, known = drive.shape[0], state.numpy(), product.numpy()
        for steps in range(1, limits.max_steps + 1):
            rows, lost = loops.evaluate(
                known, source, against, driven, places, measured, index, rows, rule,
                constants, steps == limits.max_steps,
            )  # fmt: skip
            if record is not None:
                record.append(_snapshot(image, packed, index, max(rows, 0)))
            if rows <= 0 or lost:
                break
            if steps == 1:
                source, known = places[loops.PACKED], places[loops.WORK]
                rule = loops.ACTIVITY if rule == loops.ACTIVITY else loops.GIVEN
            if rows == len(index):
                torch.mm(packed, weight, out=work)
            else:
                torch.mm(packed[:rows], weight, out=work[:rows])
        residual, bound, reference = figures.unbind(0)
        return Relaxed(
            image,
            buffer[loops.LAST_STATE] if keep else None,
            buffer[loops.LAST_PRODUCT] if keep else None,
            residual,
            bound,
            reference,
            steps,
            rows == 0,
            not lost,
        )

    def relax_pair(
        self,
        weight: Tensor,
        drive: Tensor,
        direction: Tensor,
        beta: float,
        state: Tensor,
        product: Tensor,
        limits: Limits,
        *,
        record: list[tuple[Tensor, Tensor]] | None = None,
    ) -> Pair:
        batch = drive.shape[0]
        buffer, figures = drive.new_empty(loops.PAIR_SLOTS, *drive.shape), drive.new_empty(3, batch)
        places, measured = buffer.numpy(), figures.numpy()
        given, push, center, known = (t.numpy() for t in (drive, direction, state, product))
        index, astray = np.arange(batch), np.empty(batch, np.int64)
        constants = _constants(limits, drive.shape[1], drive.dtype)
        shift, moved = buffer[loops.SHIFT], buffer[loops.MOVED]
        rows, own = batch, False
        for steps in range(1, limits.max_steps + 1):
            rows, lost, drifted = loops.evaluate_pair(
                given, push, beta, center, known, places, measured, index, astray, rows,
                constants, steps == 1, steps == limits.max_steps,
            )  # fmt: skip
            if record is not None:
                record.append((buffer[loops.UP].clone(), buffer[loops.DOWN].clone()))
            if rows <= 0 or lost:
                break
            torch.mm(shift[:rows], weight, out=moved[:rows])
            if drifted:
                if not own:  # the start belongs to the caller
                    places[loops.CENTER], places[loops.KNOWN] = center, known
                    center, known, own = places[loops.CENTER], places[loops.KNOWN], True
                stray = buffer[loops.STRAY, :drifted]
                torch.mm(stray, weight, out=buffer[loops.STRAY_PRODUCT, :drifted])
                loops.recentre(places, astray, drifted)
        residual, bound, scale = figures.unbind(0)
        return Pair(
            buffer[loops.UP], buffer[loops.DOWN], residual, bound, scale, steps, rows == 0, not lost
        )

    def normalise(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        cotangent = cotangent.contiguous()
        direction = torch.empty_like(cotangent)
        rms = cotangent.new_empty(cotangent.shape[0])
        loops.normalise(cotangent.numpy(), direction.numpy(), rms.numpy())
        return direction, rms

    def contrast(self, up: Tensor, down: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        delta, mean = torch.empty_like(up), torch.empty_like(up)
        total = up.new_zeros(up.shape[1])
        loops.contrast(
            up.numpy(), down.numpy(), weight.numpy(), delta.numpy(), mean.numpy(), total.numpy()
        )
        return delta, mean, total


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
def _constants(limits: Limits, hidden: int, dtype: torch.dtype) -> np.ndarray:
    """Contraction factor, tol, rounding floor, activity floor, rounding of a product, the rest."""
    eps = torch.finfo(dtype).eps
    bounded = limits.contraction is not None and limits.contraction < 1
    return np.array(
        [
            1.0 if limits.contraction is None else limits.contraction,
            limits.tol,
            ROUNDING_FLOOR * eps,
            ACTIVITY_FLOOR * hidden**0.5,
            hidden * eps if bounded else np.inf,
            NUDGE_SLACK,
            DRIFT,
        ]
    )


def _snapshot(image: Tensor, packed: Tensor, index: np.ndarray, rows: int) -> Tensor:
    """Every sample's latest image: of those set aside, and of those still packed."""
    found = image.clone()
    found[torch.from_numpy(index[:rows])] = packed[:rows]
    return found
