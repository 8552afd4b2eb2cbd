"""Functions of two phases carried as center and shift, one pass over memory each.

PyTorch takes ten passes for tanh of a pair, and a softmax over eight numbers takes it longer than
the product that they come from.
"""

from __future__ import annotations

import numpy as np

from toreqprop.kernels.attention_loops import _hyperbolic, _softmax
from toreqprop.kernels.compiling import compiled
from toreqprop.kernels.loops import tanh


@compiled
def tanh_pair(center, shift, middle, half):  # type: ignore[no-untyped-def]
    """Mean and half the difference of ``tanh(center ± shift)``; see `energies.Tanh.pair`."""
    one = center.dtype.type(1)
    edge = one - center.dtype.type(np.finfo(center.dtype).eps)
    for j in range(center.shape[0]):
        s, t = tanh(center[j]), tanh(shift[j])
        t = edge if t > edge else t
        t = -edge if t < -edge else t
        a, b = s * s, t * t
        whole = one / (one - a * b)
        middle[j] = s * (one - b) * whole
        half[j] = t * (one - a) * whole


@compiled
def softmax(logits, shares):  # type: ignore[no-untyped-def]
    """Over the last dimension."""
    rows, n = logits.shape
    for i in range(rows):
        for j in range(n):
            shares[i, j] = logits[i, j]
    _softmax(shares, np.zeros((rows, n), logits.dtype))


@compiled
def softmax_pair(logits, move, mean, half):  # type: ignore[no-untyped-def]
    """Mean and half the difference of ``softmax(logits ± move)`` over the last dimension; see
    `energies.pairs.softmax_pair`."""
    rows, n = logits.shape
    softmax(logits, mean)
    odd, even = np.empty_like(move), np.empty_like(move)
    _hyperbolic(move.reshape(-1), odd.reshape(-1), even.reshape(-1))
    for i in range(rows):
        shares, out, o, e = mean[i], half[i], odd[i], even[i]
        total_odd, total_even = shares[0] * o[0], shares[0] * e[0]
        for j in range(1, n):
            total_odd += shares[j] * o[j]
            total_even += shares[j] * e[j]
        whole = (total_even + total_odd) * (total_even - total_odd)
        unit = out.dtype.type(1) / whole
        for j in range(n):
            p = unit * shares[j]
            # Where one share is all there is, both terms are the same number: nothing moves.
            shares[j] = p * (e[j] * total_even - o[j] * total_odd)
            out[j] = p * (o[j] * total_even - e[j] * total_odd)
