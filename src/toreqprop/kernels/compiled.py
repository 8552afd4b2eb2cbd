"""The compiled kernel: PyTorch's matrix products, Numba for everything between them.

One pass over the activities evaluates tanh, measures the residual, sets converged samples aside
and packs the others, so that the next product only has rows that still need it.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from toreqprop.kernels import loops
from toreqprop.kernels.base import Kernel, Limits, Relaxed
from toreqprop.kernels.reference import ACTIVITY_FLOOR, ROUNDING_FLOOR


class NumbaKernel(Kernel):
    """Compiled on first use, then read from Numba's cache; needs the extra ``compiled``."""

    name: ClassVar[str] = "numba"

    def relax(
        self,
        weight: Tensor,
        drive: Tensor,
        state: Tensor,
        product: Tensor | None,
        limits: Limits,
        *,
        scale: Tensor | None = None,
        origin: Tensor | None = None,
        keep: bool = True,
        record: list[Tensor] | None = None,
    ) -> Relaxed:
        batch, hidden = state.shape
        image, packed, work = (torch.empty_like(drive) for _ in range(3))
        last = (torch.empty_like(drive), torch.empty_like(drive)) if keep else (image, image)
        # Rows: relative residual, error bound, scale.
        figures = torch.empty(3, batch, dtype=drive.dtype)
        eps = torch.finfo(drive.dtype).eps
        bounded = limits.contraction is not None and limits.contraction < 1
        constants = np.array(
            [
                1.0 if limits.contraction is None else limits.contraction,
                limits.tol,
                ROUNDING_FLOOR * eps,
                ACTIVITY_FLOOR * hidden**0.5,
                hidden * eps if bounded else np.inf,
            ]
        )
        index = np.arange(batch)
        arrays = tuple(t.numpy() for t in (drive, packed, image, *last, figures))
        if origin is not None:
            rule, against = loops.MOVED, origin.numpy()
        else:
            rule, against = loops.ACTIVITY, arrays[0]
        if scale is not None:
            rule = loops.GIVEN
            figures[2].copy_(scale)
        if product is None:
            product = torch.mm(state, weight, out=work)
        rows, source, known = batch, state.numpy(), product.numpy()
        for steps in range(1, limits.max_steps + 1):
            rows, lost = loops.evaluate(
                known, source, against, *arrays, index, rows, rule,
                constants, steps == limits.max_steps, keep,
            )  # fmt: skip
            if record is not None:
                record.append(_snapshot(image, packed, index, max(rows, 0)))
            if rows <= 0 or lost:
                break
            if steps == 1:
                source, known = arrays[1], work.numpy()
                rule = loops.ACTIVITY if rule == loops.ACTIVITY else loops.GIVEN
            torch.mm(packed[:rows], weight, out=work[:rows])
        residual, bound, reference = figures.unbind(0)
        kept = last if keep else (None, None)
        return Relaxed(image, *kept, residual, bound, reference, steps, rows == 0, not lost)

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

    def symmetrise(self, matrix: Tensor) -> Tensor:
        matrix = matrix.contiguous()
        result = torch.empty_like(matrix)
        loops.symmetrise(matrix.numpy(), result.numpy(), 0.5)
        return result


def _snapshot(image: Tensor, packed: Tensor, index: np.ndarray, rows: int) -> Tensor:
    """Every sample's latest image: of those set aside, and of those still packed."""
    found = image.clone()
    found[torch.from_numpy(index[:rows])] = packed[:rows]
    return found
