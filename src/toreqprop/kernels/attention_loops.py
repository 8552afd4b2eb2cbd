"""What Numba compiles for attention with an energy: heads, their softmax, and what is between.

A token's row of projections has the queries of all heads, then their keys, ``2·heads·size``
numbers. Two phases lie one below the other: the rows of the centers of a sample's tokens, then
those of their shifts. With ``Q``, ``K`` the queries and keys of both, ``QKᵀ`` has all logits that a
pair needs, and ``T = [[Ā, Ã], [Ã, Ā]]``, from attentions ``Ā ± Ã``, mixes both: ``T·K``, ``Tᵀ·Q``.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numba.extending import overload

from toreqprop.kernels.compiling import helper
from toreqprop.kernels.products import multiply

LARGEST_MOVE = 30.0
"""As in `energies.pairs`: beyond it two phases have nothing in common."""


def exponential(value: float) -> float:
    """exp: a polynomial in float32, which vectorises; the library's in float64."""
    return math.exp(value)


@overload(exponential, jit_options={"error_model": "numpy"})
def _exponential(value):  # type: ignore[no-untyped-def]
    if value != numba.float32:  # the type, while compiling
        return lambda value: math.exp(value)

    f = numba.float32

    def polynomial(value):  # type: ignore[no-untyped-def]
        # e^x = 2^k·e^r with |r| ≤ ½·log 2, and the Taylor series of e^r: largest error 2e-7. What
        # would be below all normal numbers is zero: a masked position gets no share at all.
        x = f(-87.0) if value < f(-87.0) else value
        x = f(88.0) if x > f(88.0) else x
        k = math.floor(x * f(1.4426950408889634) + f(0.5))
        r = (x - k * f(0.693359375)) - k * f(-2.12194440054690583e-4)
        p = f(1 / 5040)
        p = p * r + f(1 / 720)
        p = p * r + f(1 / 120)
        p = p * r + f(1 / 24)
        p = p * r + f(1 / 6)
        p = p * r + f(0.5)
        p = p * r + f(1.0)
        p = p * r + f(1.0)
        power = np.int32((np.int32(k) + np.int32(127)) << np.int32(23)).view(np.float32)
        return f(0.0) if value < f(-87.0) else p * power

    return polynomial


@helper
def _softmax(logits, bias):  # type: ignore[no-untyped-def]
    """Over the last dimension of logits and bias, (rows, n), in place."""
    rows, n = logits.shape
    for i in range(rows):
        row, own = logits[i], bias[i]
        top = row[0] + own[0]
        for j in range(n):
            row[j] += own[j]
            top = row[j] if row[j] > top else top
        for j in range(n):
            row[j] -= top
    flat = logits.reshape(-1)
    for j in range(flat.shape[0]):
        flat[j] = exponential(flat[j])
    for i in range(rows):
        row = logits[i]
        total = row[0]
        for j in range(1, n):
            total += row[j]
        factor = row.dtype.type(1) / total
        for j in range(n):
            row[j] *= factor


@helper
def _hyperbolic(move, odd, even):  # type: ignore[no-untyped-def]
    """``sinh m`` and ``cosh m``; where all are small in float32, by their series."""
    kind = move.dtype.type
    peak = kind(0)
    for j in range(move.shape[0]):
        size = abs(move[j])
        peak = size if size > peak else peak
    if move.itemsize > 4 or not peak <= 1:
        for j in range(move.shape[0]):
            m = min(max(move[j], kind(-LARGEST_MOVE)), kind(LARGEST_MOVE))
            m = move[j] if math.isnan(move[j]) else m
            odd[j], even[j] = math.sinh(m), math.cosh(m)
        return
    for j in range(move.shape[0]):
        m = move[j]
        y = m * m
        p = kind(1 / 362880) * y + kind(1 / 5040)
        p = (p * y + kind(1 / 120)) * y + kind(1 / 6)
        odd[j] = m + m * y * p
        q = kind(1 / 3628800) * y + kind(1 / 40320)
        q = ((q * y + kind(1 / 720)) * y + kind(1 / 24)) * y + kind(0.5)
        even[j] = kind(1) + y * q


@helper
def attend(gemm, both, shape, bias, logits, near):  # type: ignore[no-untyped-def]
    """What the heads of one sample tell and ask, ``P·k`` and ``Pᵀ·q``, from address to address.

    ``both`` and ``near`` are addresses of (n, 2·heads·size) numbers, ``shape`` is (heads, size, n),
    ``bias`` and ``logits`` are (heads·n, n); the logits become the attention.
    """
    heads, size, n = shape
    item, stride = logits.itemsize, 2 * heads * size
    keys = heads * size * item
    start = logits.ctypes.data
    for h in range(heads):
        q, own = both + h * size * item, start + h * n * n * item
        multiply(gemm, (q, q + keys, own), (n, size, n), (stride, stride, n), (False, True))
    _softmax(logits, bias)
    for h in range(heads):
        offset, own = h * size * item, start + h * n * n * item
        q, told = both + offset, near + offset
        strides = n, stride, stride
        multiply(gemm, (own, q + keys, told), (n, n, size), strides, (False, False))
        multiply(gemm, (own, q, told + keys), (n, n, size), strides, (True, False))


@helper
def attend_pair(gemm, both, shape, bias, grid, space, near, mean):  # type: ignore[no-untyped-def]
    """As `attend` for two phases: what the shift is told and asked to the address ``near``, and
    where ``mean`` is not zero the center there.

    ``both`` is the address of (2n, 2·heads·size) numbers; ``grid`` (heads, 2n, 2n) is left with
    ``T``, and ``space`` is (4, heads·n·n).
    """
    heads, size, n = shape
    item, stride, side = grid.itemsize, 2 * heads * size, 2 * n
    keys, block = heads * size * item, side * side * item
    start = grid.ctypes.data
    for h in range(heads):
        q, own = both + h * size * item, start + h * block
        multiply(
            gemm, (q, q + keys, own), (side, size, side), (stride, stride, side), (False, True)
        )
    _pair_attention(grid, space, n, bias)
    for h in range(heads):
        offset = h * size * item
        q, own = both + offset, start + h * block
        sizes, strides = (n, side, size), (side, stride, stride)
        lower, right = own + n * side * item, own + n * item
        multiply(gemm, (lower, q + keys, near + offset), sizes, strides, (False, False))
        multiply(gemm, (right, q, near + keys + offset), sizes, strides, (True, False))
        if mean:
            multiply(gemm, (own, q + keys, mean + offset), sizes, strides, (False, False))
            multiply(gemm, (own, q, mean + keys + offset), sizes, strides, (True, False))


@helper
def _pair_attention(grid, space, n, bias):  # type: ignore[no-untyped-def]
    """``T`` of every head from ``QKᵀ``, in place; see `energies.pairs.softmax_pair`."""
    heads = grid.shape[0]
    rows = heads * n
    shares, move, odd, even = space[0], space[1], space[2], space[3]
    for h in range(heads):
        for i in range(n):
            upper, lower, at = grid[h, i], grid[h, n + i], (h * n + i) * n
            for j in range(n):
                shares[at + j] = upper[j] + lower[n + j]
                move[at + j] = upper[n + j] + lower[j]
    _softmax(shares.reshape(rows, n), bias)
    _hyperbolic(move, odd, even)
    for h in range(heads):
        for i in range(n):
            at = (h * n + i) * n
            total_odd, total_even = shares[at] * odd[at], shares[at] * even[at]
            for j in range(at + 1, at + n):
                total_odd += shares[j] * odd[j]
                total_even += shares[j] * even[j]
            whole = (total_even + total_odd) * (total_even - total_odd)
            a, b = total_even / whole, total_odd / whole
            upper, lower = grid[h, i], grid[h, n + i]
            for j in range(n):
                p = shares[at + j]
                mean, half = even[at + j] * a - odd[at + j] * b, odd[at + j] * a - even[at + j] * b
                upper[j] = p * mean
                lower[j] = p * half
            for j in range(n):
                upper[n + j] = lower[j]
                lower[n + j] = upper[j]
