"""Both phases of attention with an energy, whole: products, heads, and what is extrapolated.

A row of an array is a sample with all its tokens, ``n·width`` numbers; `kernels.attention_loops`
says how projections lie in memory. ``weights`` is the address of ``[W_q; W_k]`` in rows, ``shape``
(heads, size, n). Rows still relaxing are packed: row r belongs to sample ``index[r]``.
"""

from __future__ import annotations

import math

import numpy as np

from toreqprop.kernels.attention_loops import attend, attend_pair
from toreqprop.kernels.compiling import compiled, helper
from toreqprop.kernels.loops import _copy, _pair_image, tanh
from toreqprop.kernels.products import product
from toreqprop.kernels.vectors import dot, squares

SLOTS = 3
"""The last iterate and two before it: what is extrapolated from."""


@helper
def _apart(source, other, out):  # type: ignore[no-untyped-def]
    for j in range(out.shape[0]):
        out[j] = source[j] - other[j]


@helper
def _mixture(matrix, target, count, digits):  # type: ignore[no-untyped-def]
    """γ with ``matrix·γ = target`` of one or two unknowns; zero where it has no sane solution."""
    if count == 0:
        return 0.0, 0.0
    a, b, c, d = matrix
    p, q = target
    ridge = 10 * digits * (abs(a) + (abs(d) if count > 1 else 0.0))
    a += ridge if a >= 0 else -ridge
    d += ridge if d >= 0 else -ridge
    one, two = (p / a if a != 0 else 0.0), 0.0
    whole = a * d - b * c
    if count > 1 and abs(whole) > 10 * digits * abs(a * d):
        one, two = (p * d - q * b) / whole, (q * a - p * c) / whole
    if not (abs(one) < _LARGEST and abs(two) < _LARGEST):
        return 0.0, 0.0
    return one, two


_LARGEST = 1e3


@helper
def _mixed(images, gaps, tests, slot, count, digits, safely, out, work):  # type: ignore[no-untyped-def]
    """The next iterate of one sample, ``f − γ₁(f − f₁) − γ₂(f − f₂)``, of (slots, numbers).

    γ makes the residual ``r − γ₁(r − r₁) − γ₂(r − r₂)`` orthogonal to the first ``count`` rows of
    ``tests``. Where it has to be done ``safely``, only if that residual is smaller than r.
    """
    one, two = (slot - 1) % SLOTS, (slot - 2) % SLOTS
    r = gaps[slot]
    first = second = 0.0
    if count > 0:
        p, a = dot(tests[0], r), dot(tests[0], gaps[one])
        q = b = c = d = 0.0
        if count > 1:
            q, c = dot(tests[1], r), dot(tests[1], gaps[one])
            b, d = dot(tests[0], gaps[two]), dot(tests[1], gaps[two])
        first, second = _mixture((p - a, p - b, q - c, q - d), (p, q), count, digits)
    own = 1 - first - second
    kind = out.dtype.type
    w, v, u = kind(own), kind(first), kind(second)
    if safely and count > 0:
        near, far = gaps[one], gaps[two]
        for j in range(work.shape[0]):
            work[j] = w * r[j] + v * near[j]
        if count > 1:
            for j in range(work.shape[0]):
                work[j] += u * far[j]
        if not dot(work, work) < dot(r, r):
            count = 0
    image = images[slot]
    if count == 0:
        _copy(image, out)
        return
    before = images[one]
    for j in range(out.shape[0]):
        out[j] = w * image[j] + v * before[j]
    if count > 1:
        before = images[two]
        for j in range(out.shape[0]):
            out[j] += u * before[j]


@compiled
def relax(  # type: ignore[no-untyped-def]
    gemm, drive, start, started, weights, shape, bias, memory, constants, max_steps, found, residual
):
    """One phase from ``start``, or from ``tanh(drive)``: Anderson, each sample on its own.

    Into ``found``: the iterate that would follow the first whose residual is at most ``tol``.
    Returns evaluations, and whether all samples have converged.
    """
    factor, tol, rounding, floor = constants
    batch, numbers = drive.shape
    heads, size, n = shape
    wide, width, digits = 2 * heads * size, numbers // n, np.finfo(drive.dtype).eps
    images = np.empty((batch, SLOTS, numbers), drive.dtype)
    gaps = np.empty((batch, SLOTS, numbers), drive.dtype)
    tests = np.empty((2, numbers), drive.dtype)
    work = np.empty(numbers, drive.dtype)
    state = np.empty((batch, numbers), drive.dtype)
    moved = np.empty((batch * n, width), drive.dtype)
    both = np.empty((batch * n, wide), drive.dtype)
    near = np.empty((batch * n, wide), drive.dtype)
    logits = np.empty((heads * n, n), drive.dtype)
    index = np.arange(batch)
    for i in range(batch):
        if started:
            _copy(start[i], state[i])
        else:
            for j in range(numbers):
                state[i, j] = tanh(drive[i, j])
    rows, block, steps = batch, n * wide * drive.itemsize, 0
    while rows > 0 and steps < max_steps:
        product(gemm, state.reshape(-1, width), weights, both, rows * n, (0, 0, wide, width, True))
        for r in range(rows):
            offset = r * block
            attend(gemm, both.ctypes.data + offset, shape, bias, logits, near.ctypes.data + offset)
        product(gemm, near, weights, moved, rows * n, (0, 0, wide, width, False))
        told = moved.reshape(batch, numbers)
        slot, known, remaining = steps % SLOTS, min(steps, memory), 0
        steps += 1
        for r in range(rows):
            i = index[r]
            image, gap, own = images[i, slot], gaps[i, slot], drive[i]
            for j in range(numbers):
                image[j] = tanh(own[j] + told[r, j])
                gap[j] = image[j] - state[r, j]
            apart, square = math.sqrt(dot(gap, gap)), math.sqrt(dot(image, image))
            residual[i] = 0 if apart <= rounding * square else factor * apart / max(square, floor)
            if not math.isfinite(apart):
                return steps, False
            for k in range(known):
                _apart(gap, gaps[i, (slot - 1 - k) % SLOTS], tests[k])
            done = residual[i] <= tol
            out = found[i] if done else state[remaining]
            _mixed(images[i], gaps[i], tests, slot, known, digits, done, out, work)
            if not done:
                index[remaining] = i
                remaining += 1
        rows = remaining
    return steps, rows == 0


@helper
def _place_rows(source, rows, index, n, second, target):  # type: ignore[no-untyped-def]
    """Put packed rows of projections (rows·n, wide) where their samples' (2n, wide) are: those of
    centers, or of shifts where ``second``."""
    for r in range(rows):
        first = index[r] * 2 * n + (n if second else 0)
        for k in range(n):
            _copy(source[r * n + k], target[first + k])


@compiled
def relax_pair(  # type: ignore[no-untyped-def]
    gemm, drive, center, push, weights, shape, bias, memory, constants, max_steps, found, residual
):
    """Both phases under ``push`` and its opposite, around the free equilibrium ``center``.

    The shift alone is relaxed. It is the solution of a problem that is symmetric and (to first
    order) linear: extrapolated is to where the energy is smallest, so that with m past iterates
    the steps are those of conjugate gradients. The image of the center is computed with the first
    shift: what the attention bends it by is of the second order in the nudge. Into ``found`` (2,
    batch, numbers): the mean of the images, and the iterate that would follow the first whose
    residual is at most ``tol``. Returns evaluations and whether all samples have converged.
    """
    factor, tol, rounding, floor, slack = constants
    batch, numbers = drive.shape
    heads, size, n = shape
    wide, width, digits = 2 * heads * size, numbers // n, np.finfo(drive.dtype).eps
    images = np.empty((batch, SLOTS, numbers), drive.dtype)
    gaps = np.empty((batch, SLOTS, numbers), drive.dtype)
    shifts = np.empty((batch, SLOTS, numbers), drive.dtype)
    tests = np.empty((2, numbers), drive.dtype)
    work = np.empty(numbers, drive.dtype)
    inverse = np.empty(numbers, drive.dtype)
    shift = np.empty((batch, numbers), drive.dtype)
    settled = np.empty((batch, numbers), drive.dtype)
    moved = np.empty((batch * n, width), drive.dtype)
    drifted = np.empty((batch * n, width), drive.dtype)
    both = np.empty((2 * batch * n, wide), drive.dtype)
    fresh = np.empty((batch * n, wide), drive.dtype)
    near = np.empty((batch * n, wide), drive.dtype)
    mean = np.empty((batch * n, wide), drive.dtype)
    grid = np.empty((heads, 2 * n, 2 * n), drive.dtype)
    space = np.empty((4, heads * n * n), drive.dtype)
    index, zero, one = np.arange(batch), np.zeros(numbers, drive.dtype), drive.dtype.type(1)
    least = drive.dtype.type(digits)
    product(gemm, center.reshape(-1, width), weights, fresh, batch * n, (0, 0, wide, width, True))
    _place_rows(fresh, batch, index, n, False, both)
    for i in range(batch):
        # From nothing: a step that needs no product.
        _pair_image(center[i], push[i], one, zero, found[0, i], shift[i])
        _copy(shift[i], images[i, 0])
        _copy(shift[i], gaps[i, 0])
        _copy(zero, shifts[i, 0])
    rows, block, steps = batch, n * wide * drive.itemsize, 1
    while rows > 0 and steps < max_steps:
        product(gemm, shift.reshape(-1, width), weights, fresh, rows * n, (0, 0, wide, width, True))
        _place_rows(fresh, rows, index, n, True, both)
        first = steps == 1
        for r in range(rows):
            attend_pair(
                gemm, both.ctypes.data + 2 * index[r] * block, shape, bias, grid, space,
                near.ctypes.data + r * block, mean.ctypes.data + r * block if first else 0,
            )  # fmt: skip
        product(gemm, near, weights, moved, rows * n, (0, 0, wide, width, False))
        if first:
            product(gemm, mean, weights, drifted, rows * n, (0, 0, wide, width, False))
            bent = drifted.reshape(batch, numbers)
            for i in range(batch):
                for j in range(numbers):
                    settled[i, j] = tanh(drive[i, j] + bent[i, j])
        told = moved.reshape(batch, numbers)
        slot, known, remaining = steps % SLOTS, min(steps, memory), 0
        steps += 1
        for r in range(rows):
            i = index[r]
            half, gap, middle = images[i, slot], gaps[i, slot], found[0, i]
            _copy(shift[r], shifts[i, slot])
            _pair_image(settled[i], push[i], one, told[r], middle, half)
            _apart(half, shift[r], gap)
            turn, reach = math.sqrt(dot(gap, gap)), math.sqrt(dot(half, half))
            drifting, square = squares(middle, center[i])
            drift, size_ = math.sqrt(drifting), math.sqrt(square)
            even = 0.0 if drift <= rounding * size_ else factor * drift / max(size_, floor)
            odd = 0.0 if turn <= rounding * reach else factor * turn / (slack * reach)
            residual[i] = max(even, odd)
            if not math.isfinite(turn + drift) or even > tol:
                return steps, False
            if known > 0:
                for j in range(numbers):
                    slope = one - settled[i, j] * settled[i, j]
                    inverse[j] = one / (slope if slope > least else least)
            for k in range(known):
                last, test = shifts[i, (slot - 1 - k) % SLOTS], tests[k]
                for j in range(numbers):
                    test[j] = (shift[r, j] - last[j]) * inverse[j]
            done = residual[i] <= tol
            out = found[1, i] if done else shift[remaining]
            _mixed(images[i], gaps[i], tests, slot, known, digits, done, out, work)
            if not done:
                index[remaining] = i
                remaining += 1
        rows = remaining
    return steps, rows == 0


@compiled
def contrasts(gemm, phases, weight, weights, shape, bias, near, logits):  # type: ignore[no-untyped-def]
    """What the local gradients of the projections and of the bias are made of.

    ``phases`` (batch·2n, width) has the centers of a sample's tokens, then their shifts. Into
    ``near``, alike: what the shifts are told and asked, then the centers, times the sample's
    ``weight``; into ``logits`` (heads, n, n) the sum of the attentions' shifts times it.
    """
    heads, size, n = shape
    wide, width, batch = 2 * heads * size, phases.shape[1], weight.shape[0]
    both = np.empty((batch * 2 * n, wide), phases.dtype)
    grid = np.empty((heads, 2 * n, 2 * n), phases.dtype)
    space = np.empty((4, heads * n * n), phases.dtype)
    product(gemm, phases, weights, both, batch * 2 * n, (0, 0, wide, width, True))
    block = n * wide * phases.itemsize
    logits[:] = 0
    for i in range(batch):
        place = near.ctypes.data + 2 * i * block
        attend_pair(
            gemm, both.ctypes.data + 2 * i * block, shape, bias, grid, space, place, place + block
        )
        factor = weight[i]
        for k in range(2 * n):
            row = near[2 * n * i + k]
            for j in range(wide):
                row[j] *= factor
        for h in range(heads):
            for k in range(n):
                source, target = grid[h, n + k], logits[h, k]
                for j in range(n):
                    target[j] += factor * source[j]
