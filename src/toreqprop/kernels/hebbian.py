"""Local gradients of matrices from the activities at their two ends, in one compiled call."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from toreqprop.kernels.addresses import matrix_at, numbers_at
from toreqprop.kernels.compiling import compiled, helper
from toreqprop.kernels.loops import _copy, _copy_all
from toreqprop.kernels.products import multiply, outer_product, routine
from toreqprop.kernels.vectors import dot


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


def stack(
    state: Sequence[Tensor], x: Tensor, weight: Tensor, heat: Sequence[float]
) -> list[Tensor]:
    """`matrix_and_bias` of every matrix of a stack above the input ``x``, ``weight`` times ``heat``
    of the layer above: matrix, bias, matrix, bias. ``state`` has all centers, then all shifts."""
    widths = [x.shape[1], *[t.shape[1] for t in state[: len(heat)]]]
    found: list[Tensor] = []
    for below, above in itertools.pairwise(widths):
        found += (x.new_empty(above, below), x.new_empty(above))
    places = np.array([t.data_ptr() for t in (x, *state, *found)], np.int64)
    stack_gradients(routine(x.dtype), places, np.array(widths), weight.numpy(), np.array(heat))
    return found


def serves(tensors: tuple[Tensor, ...]) -> bool:
    """Whether these are rows of numbers without gaps; that they are plain is asked elsewhere."""
    return all(t.dim() == 2 and t.is_contiguous() for t in tensors) and not torch.is_grad_enabled()


@compiled
def stack_gradients(gemm, places, widths, weight, heat):  # type: ignore[no-untyped-def]
    """``places``: the input, centers and shifts of the layers, then what is found."""
    layers, rows = heat.shape[0], weight.shape[0]
    own, nothing = np.empty_like(weight), matrix_at(places[0], 0, widths[0], weight)
    for layer in range(layers):
        factor = weight.dtype.type(heat[layer])
        for i in range(rows):
            own[i] = factor * weight[i]
        above, below = widths[layer + 1], widths[layer]
        turned = matrix_at(places[layers + layer], rows, below, weight) if layer else nothing
        _differences(
            gemm,
            matrix_at(places[1 + layer], rows, above, weight),
            matrix_at(places[1 + layers + layer], rows, above, weight),
            matrix_at(places[layer], rows, below, weight),
            turned,
            own,
            matrix_at(places[1 + 2 * layers + 2 * layer], above, below, weight),
            numbers_at(places[2 + 2 * layers + 2 * layer], above, weight),
        )


@helper
def add_bias(rows, bias):  # type: ignore[no-untyped-def]
    """To every row. Returns whether all numbers are finite."""
    total = 0.0
    for i in range(rows.shape[0]):
        row = rows[i]
        for j in range(row.shape[0]):
            row[j] += bias[j]
        total += 0 * dot(row, row)
    return total == 0


@helper
def read_out(gemm, top, reads, out, gains):  # type: ignore[no-untyped-def]
    """``gain·W s + lift·c`` of rows s, to the address ``out``. ``reads``: addresses of W and c, and
    how many numbers are read of a sample, zero where nothing is. ``gains``: gain and lift."""
    if reads[2] == 0:
        return
    (rows, width), count = top.shape, reads[2]
    places = top.ctypes.data, reads[0], out
    multiply(gemm, places, (rows, width, count), (width, width, count), (False, True), gains[0])
    said, lift = matrix_at(out, rows, count, top), top.dtype.type(gains[1])
    bias = numbers_at(reads[1], count, top)
    for i in range(rows):
        for j in range(count):
            said[i, j] += lift * bias[j]


@helper
def read_back(gemm, top, reads, cotangent, gradients, gains, slope):  # type: ignore[no-untyped-def]
    """The slope of rows s, and the gradients of W and c, under a cotangent of `read_out`; where
    nothing was read the slope is the cotangent. Both, and the ``gradients``, by address."""
    (rows, width), count = top.shape, reads[2]
    if count == 0:
        _copy_all(matrix_at(cotangent, rows, width, top), slope)
        return
    places = cotangent, reads[0], slope.ctypes.data
    multiply(gemm, places, (rows, count, width), (count, width, width), (False, False), gains[0])
    places = cotangent, top.ctypes.data, gradients[0]
    multiply(gemm, places, (count, rows, width), (count, width, width), (True, False), gains[0])
    given, lift = matrix_at(cotangent, rows, count, top), top.dtype.type(gains[1])
    bias = numbers_at(gradients[1], count, top)
    for j in range(count):
        bias[j] = 0
    for i in range(rows):
        for j in range(count):
            bias[j] += lift * given[i, j]


@compiled
def _differences(gemm, center, shift, below, turned, weight, matrix, bias):  # type: ignore[no-untyped-def]
    """With a shift at either end one product of twice as many rows: ``(p̃; p̄)ᵀ(q̄; q̃)``."""
    rows = shift.shape[0]
    ends = 2 if turned.shape[0] else 1
    moved = np.empty((ends * rows, shift.shape[1]), shift.dtype)
    for j in range(bias.shape[0]):
        bias[j] = 0
    for i in range(rows):
        row, out, own = shift[i], moved[i], weight[i]
        for j in range(row.shape[0]):
            out[j] = own * row[j]
            bias[j] += out[j]
    if ends == 1:
        outer_product(gemm, moved, below, matrix)
        return
    beside = np.empty((2 * rows, below.shape[1]), below.dtype)
    for i in range(rows):
        _copy(center[i], moved[rows + i])
        _copy(below[i], beside[i])
        row, out, own = turned[i], beside[rows + i], weight[i]
        for j in range(row.shape[0]):
            out[j] = own * row[j]
    outer_product(gemm, moved, beside, matrix)
