"""Several matrices brought into balls, and their gradients, in one compiled call each.

Around a call for every matrix Python took as long as the call: here all are given by addresses.
"""

from __future__ import annotations

import math

import numpy as np

from toreqprop.kernels.addresses import matrix_at, numbers_at
from toreqprop.kernels.compiling import compiled, helper
from toreqprop.kernels.lanczos import block_norm, next_start, symmetric_norm
from toreqprop.kernels.products import routine as routine
from toreqprop.kernels.symmetric import STRIP, symmetrise, transposed_strip
from toreqprop.kernels.vectors import dot

SMALLEST, LARGEST = 1e-18, 1e18
"""Outside of these squares of norms may leave the range of floats."""

OTHERS, PAIRS = 4, 5
"""Columns of what is found of a matrix, where it is asked for: the sum of the squares of all
singular values but those of the pairs of vectors that are kept, and from there on these, the
largest first. They are of the matrix before it was brought into the ball."""


@compiled
def into_balls(gemm, places, shapes, radii, cold, found):  # type: ignore[no-untyped-def]
    """``W ↦ W·min(1, radius/(margin·ν))`` of every matrix, or of its symmetric part.

    Columns of ``places``: addresses of raw and bounded weight, start, left and right vectors, the
    margin and the number of training steps. Where the two weights are in one place nothing is
    written there: the factor is for who uses it. Columns of ``shapes``: rows, columns, vectors of a
    block, pairs of products (``cold`` times as many before the first step), or products of a
    symmetric one, whether it is, and how many pairs of vectors are kept. Columns of ``found``: ν,
    the factor, whether there is one, and that from what lies at the bounded weight's address to the
    weight; and, where there are more columns, what `OTHERS` says.
    """
    like = gemm[2]
    kind, tiny = like.dtype.type, np.finfo(like.dtype).tiny
    for k in range(places.shape[0]):
        rows, columns, size, rounds, symmetric, pairs = shapes[k]
        raw = matrix_at(places[k, 0], rows, columns, like)
        weight = matrix_at(places[k, 1], rows, columns, like)
        start = matrix_at(places[k, 2], size, columns, like)
        left = matrix_at(places[k, 3], pairs, rows, like)
        right = matrix_at(places[k, 4], max(size, pairs), columns, like)
        values = np.zeros(max(size, pairs))
        margin = float(numbers_at(places[k, 5], 1, like)[0])
        if numbers_at(places[k, 6], 1, places)[0] == 0:
            rounds *= cold
        unit, source = 1.0, raw
        if symmetric:
            symmetrise(raw, weight, 0.5)
            source = weight
        value = _norm(gemm, source, symmetric, start, rounds, left, right, values)
        alone = places[k, 0] == places[k, 1]
        if not SMALLEST < value < LARGEST:  # or a NaN
            unit = 1 / max(_peak(source), tiny)
            if alone:
                weight = np.empty((rows, columns), like.dtype)
            if not symmetric:
                _times(raw, kind(1), weight)
            _scale(weight, kind(unit))
            value = _norm(gemm, weight, symmetric, start, rounds, left, right, values)
        reach = value * margin
        inside = reach <= radii[k] * unit
        share = 1 / unit if inside else radii[k] / max(reach, tiny)
        if alone:
            pass
        elif symmetric or unit != 1:
            _scale(weight, kind(share))
        else:
            _times(raw, kind(share), weight)
        found[k, 0], found[k, 1], found[k, 2] = value / unit, share * unit, not inside
        found[k, 3] = share * unit if alone else 1.0
        if found.shape[1] > PAIRS:
            found[k, OTHERS] = _others(raw, values[:pairs], unit)
            for m in range(pairs):
                found[k, PAIRS + m] = values[m] / unit


@helper
def placed(places, begin, written):  # type: ignore[no-untyped-def]
    """``places`` whose vectors, and weights where they are ``written``, count from ``begin``."""
    found = places.copy()
    for k in range(found.shape[0]):
        found[k, 3] += begin
        found[k, 4] += begin
        if written:
            found[k, 1] += begin
    return found


@helper
def _norm(gemm, matrix, symmetric, start, rounds, left, right, values):  # type: ignore[no-untyped-def]
    if symmetric:
        return symmetric_norm(matrix, start[0], rounds, left[0], right[0])
    return block_norm(gemm, matrix, start, rounds, left, right, values)


@helper
def _others(matrix, values, unit):  # type: ignore[no-untyped-def]
    """The sum of the squares of all singular values but these, which are those of ``unit`` times
    the matrix."""
    total = 0.0
    for i in range(matrix.shape[0]):
        total += dot(matrix[i], matrix[i])
    for value in values:
        total -= (value / unit) ** 2
    return max(total, 0.0)


@compiled
def out_of_balls(places, shapes, found, fresh, every, like):  # type: ignore[no-untyped-def]
    """``G ↦ f·(G − ⟨G, W⟩/ν·uvᵀ)`` of every matrix, of a symmetric one with the symmetric part of
    G, and where its next estimate starts.

    Columns of ``places``: those of `into_balls`, the gradient's address in place of the raw
    weight's, zero where there is none, and that of the result, zero where it is the gradient
    itself. Training steps are counted here. A ball that has moved elsewhere since, or to another
    dtype, has no start here, and keeps what it has. Returns whether a number of steps that
    ``every`` divides was reached.
    """
    due = False
    for k in range(places.shape[0]):
        if places[k, 0] == 0:
            continue
        rows, columns, size, _, symmetric, _ = shapes[k]
        right = matrix_at(places[k, 4], size, columns, like)
        if places[k, 7]:
            gradient = matrix_at(places[k, 0], rows, columns, like)
            weight = matrix_at(places[k, 1], rows, columns, like)
            left = numbers_at(places[k, 3], rows, like)
            out = matrix_at(places[k, 7], rows, columns, like)
            if symmetric:
                _symmetric_slope(gradient, weight, left, right[0], found[k], out)
            else:
                _slope(gradient, weight, left, right[0], found[k], out)
        if places[k, 2] == 0:
            continue
        steps = numbers_at(places[k, 6], 1, places)
        steps[0] += 1
        start = matrix_at(places[k, 2], size, columns, like)
        next_start(right, steps[0], fresh * math.sqrt(3 / columns), start)
        due = due or steps[0] % every == 0
    return due


@helper
def _along(gradient, weight, found):  # type: ignore[no-untyped-def]
    """``⟨G, W⟩/ν``; zero where the weight was not scaled."""
    inner = 0.0
    if found[2]:
        for i in range(gradient.shape[0]):
            inner += dot(gradient[i], weight[i])
        inner *= found[3] / found[0]
    return inner


@helper
def _slope(gradient, weight, left, right, found, out):  # type: ignore[no-untyped-def]
    along, scale = _along(gradient, weight, found), out.dtype.type(found[1])
    for i in range(gradient.shape[0]):
        given, row, share = gradient[i], out[i], out.dtype.type(along * left[i])
        for j in range(row.shape[0]):
            row[j] = scale * given[j] - share * right[j]


@helper
def _symmetric_slope(gradient, weight, left, right, found, out):  # type: ignore[no-untyped-def]
    along, half = _along(gradient, weight, found), out.dtype.type(0.5 * found[1])
    strip = np.empty((STRIP, gradient.shape[0]), gradient.dtype)
    for top in range(0, gradient.shape[0], STRIP):
        for r in range(transposed_strip(gradient, top, strip)):
            across, down, row = gradient[top + r], strip[r], out[top + r]
            share = out.dtype.type(along * left[top + r])
            for j in range(row.shape[0]):
                row[j] = half * (across[j] + down[j]) - share * right[j]


@helper
def _scale(matrix, factor):  # type: ignore[no-untyped-def]
    if factor != 1:
        for i in range(matrix.shape[0]):
            row = matrix[i]
            for j in range(row.shape[0]):
                row[j] *= factor


@helper
def _times(matrix, factor, out):  # type: ignore[no-untyped-def]
    for i in range(matrix.shape[0]):
        given, row = matrix[i], out[i]
        for j in range(row.shape[0]):
            row[j] = factor * given[j]


@helper
def _peak(matrix):  # type: ignore[no-untyped-def]
    """The largest size of an entry; NaN where there is one."""
    largest = 0.0
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            if not abs(matrix[i, j]) <= largest:
                largest = abs(matrix[i, j])
                if largest != largest:
                    return largest
    return largest
