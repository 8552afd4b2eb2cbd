"""``A ↦ ball(½(A + Aᵀ))`` and its gradient, compiled; `kernels.reference` defines both."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from toreqprop.kernels.compiling import compiled, helper
from toreqprop.kernels.symmetric import STRIP, symmetrise, transposed_strip
from toreqprop.kernels.vectors import dot


class Bound(NamedTuple):
    """What the gradient needs of ``ν``: see `kernels.reference.spectral_ball`.

    ``vectors`` and ``sums`` (2, hidden) are the two refinements of d and the products |S|d they
    came from; ``row`` is where the last ratio is largest. ``factor`` is one where ν ≤ radius.
    """

    factor: float
    bound: float
    row: int
    vectors: np.ndarray
    sums: np.ndarray


def symmetric_ball(raw: Tensor, radius: float) -> tuple[Tensor, Bound]:
    """The bounded symmetric matrix, and what its gradient needs."""
    source = raw.detach().contiguous()
    weight = source.new_empty(source.shape)
    return weight, Bound(*_into_ball(source.numpy(), weight.numpy(), radius))


def symmetric_ball_gradient(gradient: Tensor, weight: Tensor, bound: Bound) -> Tensor:
    """The gradient of A from that of W."""
    source = gradient.detach().contiguous()
    result = source.new_empty(source.shape)
    if bound.factor == 1.0:
        symmetrise(source.numpy(), result.numpy(), 0.5)
    else:
        _with_slope(source.numpy(), weight.detach().numpy(), *bound, result.numpy())
    return result


@helper
def _magnitude_product(matrix, vector, out):  # type: ignore[no-untyped-def]
    """``|M|·v`` of a symmetric M, four rows at a time: sums over rows vectorise as they stand."""
    n = matrix.shape[0]
    whole = n - n % 4
    for j in range(n):
        out[j] = 0
    for i in range(0, whole, 4):
        a, b, c, d = vector[i], vector[i + 1], vector[i + 2], vector[i + 3]
        p, q, r, s = matrix[i], matrix[i + 1], matrix[i + 2], matrix[i + 3]
        for j in range(n):
            out[j] += (a * abs(p[j]) + b * abs(q[j])) + (c * abs(r[j]) + d * abs(s[j]))
    for i in range(whole, n):
        factor = vector[i]
        for j in range(n):
            out[j] += factor * abs(matrix[i, j])


@compiled
def _into_ball(raw, weight, radius):  # type: ignore[no-untyped-def]
    """Write ``ball(½(A + Aᵀ))`` into ``weight``; returns the fields of `Bound`."""
    symmetrise(raw, weight, 0.5)
    n = weight.shape[0]
    vectors, sums = np.empty((2, n), weight.dtype), np.empty((2, n), weight.dtype)
    vector = np.ones(n, weight.dtype)
    for k in range(2):
        _magnitude_product(weight, vector, sums[k])
        largest = max(sums[k].max(), np.finfo(weight.dtype).tiny)
        for i in range(n):
            vectors[k, i] = sums[k, i] / largest + weight.dtype.type(1e-6)
        vector = vectors[k]
    ratio = np.empty(n, weight.dtype)
    _magnitude_product(weight, vector, ratio)
    row = 0
    for i in range(n):
        ratio[i] /= vector[i]
        if not ratio[i] <= ratio[row]:  # also true for NaN, which must not hide
            row = i
    bound = ratio[row]
    if not bound > radius:
        return 1.0, float(bound), row, vectors, sums
    factor = weight.dtype.type(radius / bound)
    for i in range(n):
        for j in range(n):
            weight[i, j] *= factor
    return float(factor), float(bound), row, vectors, sums


@compiled
def _with_slope(  # type: ignore[no-untyped-def]
    gradient, weight, factor, bound, row, vectors, sums, result
):
    """``sym(f·G − ⟨G, W⟩·∂ log ν/∂S)``, with ∂ν/∂|S| as a sum of outer products."""
    n = weight.shape[0]
    kind = weight.dtype.type
    inner = 0.0
    for i in range(n):
        inner += dot(gradient[i], weight[i])
    last = vectors[1]
    back = np.empty((2, n), weight.dtype)
    adjoint = np.empty(n, weight.dtype)
    for j in range(n):
        adjoint[j] = abs(weight[row, j]) / (kind(factor) * last[row])
    adjoint[row] -= kind(bound) / last[row]
    for k in (1, 0):
        peak = sums[k].argmax()
        largest = sums[k, peak]
        spill = 0.0
        for j in range(n):
            back[k, j] = adjoint[j] / largest
            spill += adjoint[j] * sums[k, j]
        back[k, peak] -= kind(spill / largest) / largest
        if k == 1:
            _magnitude_product(weight, back[1], adjoint)
            for j in range(n):
                adjoint[j] /= kind(factor)
    half, scale = kind(0.5 * inner / bound), kind(0.5 * factor)
    ahead, first, behind = back[1], vectors[0], back[0]
    strip = np.empty((STRIP, n), weight.dtype)
    for top in range(0, n, STRIP):
        for r in range(transposed_strip(gradient, top, strip)):
            i = top + r
            across, down, values, out = gradient[i], strip[r], weight[i], result[i]
            a, b, c = ahead[i], first[i], behind[i]
            for j in range(n):
                slope = half * ((a * first[j] + b * ahead[j]) + (c + behind[j]))
                value = values[j]
                signed = slope if value > 0 else (-slope if value < 0 else kind(0))
                out[j] = scale * (across[j] + down[j]) - signed
    for j in range(n):
        step = half * np.sign(weight[row, j]) * last[j] / last[row]
        result[row, j] -= step
        result[j, row] -= step
