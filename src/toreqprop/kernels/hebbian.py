"""The local gradient of a matrix from the activities at its two ends, in one compiled call."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from toreqprop.kernels.compiling import compiled
from toreqprop.kernels.products import outer_product, routine


def matrix_and_bias(
    post: tuple[Tensor, Tensor], pre: tuple[Tensor, Tensor | None], weight: Tensor
) -> tuple[Tensor, Tensor]:
    """``Σ w·(p̃·q̄ᵀ + p̄·q̃ᵀ)`` and ``Σ w·p̃`` over the samples, of (center, shift) at either end.

    ``post`` (batch, above), ``pre`` (batch, below), without a shift where that end is clamped.
    """
    (center, shift), (below, turned) = post, pre
    matrix = shift.new_empty(shift.shape[1], below.shape[1])
    bias = shift.new_empty(shift.shape[1])
    _differences(
        routine(shift.dtype), center.numpy(), shift.numpy(), below.numpy(),
        (below[:0] if turned is None else turned).numpy(), weight.numpy(), matrix.numpy(),
        bias.numpy(),
    )  # fmt: skip
    return matrix, bias


def serves(tensors: tuple[Tensor, ...]) -> bool:
    """Whether these are rows of numbers without gaps; that they are plain is asked elsewhere."""
    return all(t.dim() == 2 and t.is_contiguous() for t in tensors) and not torch.is_grad_enabled()


@compiled
def _differences(gemm, center, shift, below, turned, weight, matrix, bias):  # type: ignore[no-untyped-def]
    moved = np.empty_like(shift)
    for j in range(bias.shape[0]):
        bias[j] = 0
    for i in range(shift.shape[0]):
        row, out, own = shift[i], moved[i], weight[i]
        for j in range(row.shape[0]):
            out[j] = own * row[j]
            bias[j] += out[j]
    outer_product(gemm, moved, below, False, matrix)
    if turned.shape[0]:
        heated = np.empty_like(turned)
        for i in range(turned.shape[0]):
            row, out, own = turned[i], heated[i], weight[i]
            for j in range(row.shape[0]):
                out[j] = own * row[j]
        outer_product(gemm, center, heated, True, matrix)
