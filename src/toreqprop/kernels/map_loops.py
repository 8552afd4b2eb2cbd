"""What Numba compiles for maps coupled to their neighbourhood: whole phases, sample by sample.

A sample's channel is a strip of ``height·wide`` numbers: its rows one after the other, each with
``wide − width`` zeros behind it, so that a convolution is a sum of strips moved along and nothing
else. ``mask`` (strip,) is one at cells and zero between them. A sample relaxes until it is done, in
the fastest memory there is, before the next one begins.
"""

from __future__ import annotations

import math

import numpy as np

from toreqprop.kernels.attention_loops import exponential
from toreqprop.kernels.compiling import compiled, helper
from toreqprop.kernels.loops import _copy_all, tanh
from toreqprop.kernels.vectors import squares


@helper
def _add_told(kernel, state, wide, out):  # type: ignore[no-untyped-def]
    """Add ``K ⋆ s`` to ``out`` (channels, strip); ``state`` has a border of zeros around it."""
    channels, _, side, _ = kernel.shape
    strip = out.shape[1]
    for o in range(channels):
        own = out[o]
        for i in range(channels):
            row = state[i]
            for a in range(side):
                begin, taps = a * wide, kernel[o, i, a]
                if side == 3:  # three at a time: a sum that is loaded and stored once
                    w, v, u = taps[0], taps[1], taps[2]
                    near = row[begin : begin + strip + 2]
                    for j in range(strip):
                        own[j] += w * near[j] + v * near[j + 1] + u * near[j + 2]
                    continue
                for b in range(side):
                    weight, near = taps[b], row[begin + b : begin + b + strip]
                    for j in range(strip):
                        own[j] += weight * near[j]


@helper
def _apart(image, state):  # type: ignore[no-untyped-def]
    """``‖image − state‖`` and ``‖image‖`` of all channels."""
    gap = size = 0.0
    for c in range(image.shape[0]):
        one, two = squares(image[c], state[c])
        gap += one
        size += two
    return math.sqrt(gap), math.sqrt(size)


@helper
def _relative(gap, size, scale, factor, rounding):  # type: ignore[no-untyped-def]
    return 0.0 if gap <= rounding * size else factor * gap / scale


@helper
def _step(state, image, damping):  # type: ignore[no-untyped-def]
    if damping == 1:
        _copy_all(image, state)
        return
    share = image.dtype.type(damping)
    for c in range(image.shape[0]):
        own, to = state[c], image[c]
        for j in range(own.shape[0]):
            own[j] += share * (to[j] - own[j])


@helper
def _bordered(kernel, wide, strip):  # type: ignore[no-untyped-def]
    """A state of zeros with its border, and where its first cell is."""
    channels, _, side, _ = kernel.shape
    first = (side // 2) * (wide + 1)
    return np.zeros((channels, strip + 2 * first), kernel.dtype), first


@compiled
def relax(drive, start, kernel, mask, wide, constants, max_steps, found, last, residual):  # type: ignore[no-untyped-def]
    """One phase of ``s = σ(K ⋆ s + drive)``, ``σ(u) = 1/(1 + e^(2−4u))``, by damped iteration.

    Into ``found`` the image of the first iterate whose residual is at most ``tol``, or of the last
    one; that iterate into ``last``. All are (batch, channels, strip). Returns the evaluations of
    the slowest sample, how many samples have not converged, and whether all numbers are finite.
    """
    damping, factor, tol, rounding, floor = constants
    batch, channels, strip = drive.shape
    kind = drive.dtype.type
    one, two, four = kind(1), kind(2), kind(4)
    bordered, first = _bordered(kernel, wide, strip)
    state = bordered[:, first : first + strip]
    most = restless = 0
    for n in range(batch):
        _copy_all(start[n], state)
        image, steps = found[n], 0
        while True:
            _copy_all(drive[n], image)
            _add_told(kernel, bordered, wide, image)
            for c in range(channels):
                row = image[c]
                for j in range(strip):
                    row[j] = mask[j] / (one + exponential(two - four * row[j]))
            steps += 1
            gap, size = _apart(image, state)
            if not math.isfinite(gap):
                return steps, batch, False
            residual[n] = _relative(gap, size, max(size, floor), factor, rounding)
            if residual[n] <= tol or steps == max_steps:
                break
            _step(state, image, damping)
        _copy_all(state, last[n])
        most = max(most, steps)
        restless += residual[n] > tol
    return most, restless, True


@compiled
def relax_pair(drive, start, push, kernel, mask, wide, constants, max_steps, found, residual):  # type: ignore[no-untyped-def]
    """Both phases under ``push`` and its opposite from ``start``, as ``center ± shift``.

    As `relax`, into ``found`` (2, batch, channels, strip). The center moves on only where its
    residual is a good part (``drift``) of what is allowed: what it is told is kept until then.
    """
    damping, factor, tol, rounding, floor, slack, drift, least = constants
    batch, channels, strip = drive.shape
    kind = drive.dtype.type
    one, two, four, half = kind(1), kind(2), kind(4), kind(0.5)
    edge = one - kind(np.finfo(drive.dtype).eps)
    centers, first = _bordered(kernel, wide, strip)
    shifts, _ = _bordered(kernel, wide, strip)
    center, shift = centers[:, first : first + strip], shifts[:, first : first + strip]
    mean = np.empty((channels, strip), drive.dtype)
    slope = np.empty((channels, strip), drive.dtype)
    told = np.empty((channels, strip), drive.dtype)
    most = restless = 0
    for n in range(batch):
        _copy_all(start[n], center)
        shift[:] = 0
        middle, odd, steps, moved = found[0, n], found[1, n], 0, True
        while True:
            if moved:
                _copy_all(drive[n], mean)
                _add_told(kernel, centers, wide, mean)
                for c in range(channels):
                    row, steep = mean[c], slope[c]
                    for j in range(strip):
                        # With p = σ and q = 1 − σ: tanh is p − q, and 1 − tanh² is 4pq, exactly.
                        e = exponential(two - four * row[j])
                        p = one / (one + e)
                        row[j] = p - e * p
                        steep[j] = four * p * (e * p)
            told[:] = 0
            if steps > 0:
                _add_told(kernel, shifts, wide, told)
            for c in range(channels):
                own, force, row, steep = told[c], push[n, c], mean[c], slope[c]
                above, beside = middle[c], odd[c]
                for j in range(strip):
                    t = tanh(two * (own[j] - force[j]))
                    t = edge if t > edge else t
                    t = -edge if t < -edge else t
                    square = t * t
                    # 1 − s²t², of which s² is 1 − slope.
                    share = half * mask[j] / ((one - square) + steep[j] * square)
                    above[j] = half * mask[j] + share * row[j] * (one - square)
                    beside[j] = share * t * steep[j]
            steps += 1
            gap, size = _apart(middle, center)
            turn, reach = _apart(odd, shift)
            if not math.isfinite(gap + turn) or 0 < reach < least:
                return steps, batch, False
            still = _relative(gap, size, max(size, floor), factor, rounding)
            residual[n] = max(still, _relative(turn, reach, slack * reach, factor, rounding))
            if residual[n] <= tol or steps == max_steps:
                break
            moved = still > drift * tol
            if moved:
                _step(center, middle, damping)
            _step(shift, odd, damping)
        most = max(most, steps)
        restless += residual[n] > tol
    return most, restless, True
