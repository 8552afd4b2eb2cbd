"""What Numba compiles for stacks of dense layers: the passes between two matrix products."""

from __future__ import annotations

import math

import numba
import numpy as np

from toreqprop.kernels.compiling import OPTIONS
from toreqprop.kernels.loops import _copy, _pair_image, tanh
from toreqprop.kernels.vectors import dot, squares


@numba.njit(**OPTIONS)
def settle(up, down, strength, out):  # type: ignore[no-untyped-def]
    """``tanh(up + strength·down)``."""
    factor = up.dtype.type(strength)
    for i in range(up.shape[0]):
        above, below, row = down[i], up[i], out[i]
        for j in range(row.shape[0]):
            row[j] = tanh(below[j] + factor * above[j])


@numba.njit(**OPTIONS)
def measure(out, before, constants, residual, scale):  # type: ignore[no-untyped-def]
    """The residual of one layer for each sample, and what it is relative to."""
    rounding, floor, _ = constants
    for i in range(out.shape[0]):
        apart, square = squares(out[i], before[i])
        gap, size = math.sqrt(apart), math.sqrt(square)
        scale[i] = max(size, floor)
        residual[i] = 0.0 if gap <= rounding * size else gap / scale[i]


@numba.njit(**OPTIONS)
def settle_shift(image, up, down, push, strength, pushed, middle, half):  # type: ignore[no-untyped-def]
    """Both images under ``u ± (up + strength·down − pushed·push)``, u that of ``image``."""
    factor, share = up.dtype.type(strength), up.dtype.type(pushed)
    total = np.empty(up.shape[1], up.dtype)
    for i in range(up.shape[0]):
        above, aside = down[i], push[i]
        for j in range(total.shape[0]):
            total[j] = share * aside[j] - factor * above[j]
        _pair_image(image[i], total, up.dtype.type(1), up[i], middle[i], half[i])


@numba.njit(**OPTIONS)
def measure_shift(  # type: ignore[no-untyped-def]
    middle, center, half, before, constants, residual, drift, scale
):
    """As `measure`, of the shift, and in ``drift`` of the center."""
    rounding, floor, slack = constants
    for i in range(half.shape[0]):
        turned, reached = squares(half[i], before[i])
        drifting, square = squares(middle[i], center[i])
        turn, reach = math.sqrt(turned), math.sqrt(reached)
        away, size = math.sqrt(drifting), math.sqrt(square)
        drift[i] = 0.0 if away <= rounding * size else away / max(size, floor)
        scale[i] = slack * reach
        residual[i] = 0.0 if turn <= rounding * reach else turn / scale[i]


@numba.njit(**OPTIONS)
def keep(source, rows, target):  # type: ignore[no-untyped-def]
    """Copy these rows."""
    for k in range(rows.shape[0]):
        _copy(source[rows[k]], target[rows[k]])


@numba.njit(**OPTIONS)
def remember(image, before, gaps, slot, products):  # type: ignore[no-untyped-def]
    """Write ``image − before`` into ``gaps[slot]`` and its products with all gaps into
    ``products`` (batch, slots, slots)."""
    slots = gaps.shape[0]
    for i in range(image.shape[0]):
        new, after, origin = gaps[slot, i], image[i], before[i]
        for j in range(new.shape[0]):
            new[j] = after[j] - origin[j]
        for other in range(slots):
            value = dot(new, gaps[other, i])
            products[i, slot, other] = value
            products[i, other, slot] = value


@numba.njit(**OPTIONS)
def shares(products, scales, slot, known, residual, last, weights):  # type: ignore[no-untyped-def]
    """Of each sample, what share of each remembered image makes the smallest residual.

    ``products`` (layers, batch, slots, slots) are those of gaps, ``scales`` (layers, batch) what a
    layer's gap is relative to. ``known`` counts the slots in use before this one, for each sample;
    it is forgotten where the residual has grown since ``last``. ``weights`` (batch, slots) sum to
    one.
    """
    layers, batch, slots, _ = products.shape
    for i in range(batch):
        for k in range(slots):
            weights[i, k] = 0
        weights[i, slot] = 1
        if not residual[i] <= 2 * last[i]:
            known[i] = 0
        last[i] = residual[i]
        count = min(known[i], slots - 1)
        known[i] += 1
        if count == 0:
            continue
        one = (slot - 1) % slots
        two = (slot - 2) % slots
        a = b = c = p = q = own = 0.0
        for layer in range(layers):
            scale = scales[layer, i]
            if not scale > 0:
                continue
            unit = 1.0 / (scale * scale)
            table = products[layer, i]
            own += unit * table[slot, slot]
            near = table[slot, slot] - table[slot, one]
            p += unit * near
            a += unit * (near - table[slot, one] + table[one, one])
            if count > 1:
                far = table[slot, slot] - table[slot, two]
                q += unit * far
                c += unit * (far - table[slot, two] + table[two, two])
                b += unit * (near - table[slot, two] + table[one, two])
        ridge = 1e-6 * (a + c) + 1e-30
        a += ridge
        c += ridge
        first, second = p / a, 0.0
        if count > 1:
            whole = a * c - b * b
            if whole > 1e-6 * a * c:
                first, second = (p * c - q * b) / whole, (q * a - p * b) / whole
        if not (abs(first) < 1e3 and abs(second) < 1e3):
            first = second = 0.0
        weights[i, slot] = 1 - first - second
        weights[i, one] = first
        if slots > 2:
            weights[i, two] = second


@numba.njit(**OPTIONS)
def mix(images, weights, out):  # type: ignore[no-untyped-def]
    """``Σ_k w_k·images_k`` for each sample, ``images`` (slots, batch, width)."""
    slots = images.shape[0]
    kind = images.dtype.type
    for i in range(out.shape[0]):
        row, first, factor = out[i], images[0, i], kind(weights[i, 0])
        for j in range(row.shape[0]):
            row[j] = factor * first[j]
        for k in range(1, slots):
            other, factor = images[k, i], kind(weights[i, k])
            if factor != 0:
                for j in range(row.shape[0]):
                    row[j] += factor * other[j]
