"""What Numba compiles: the passes over memory between two matrix products.

Floating-point contraction and reassociation are allowed (they vectorise the sums), but not the
assumption that values are finite: a NaN must be seen.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numba.extending import overload

OPTIONS: dict[str, Any] = {
    "fastmath": {"contract", "reassoc", "nsz", "arcp"},
    "error_model": "numpy",
    "nogil": True,
    "cache": True,
}

ACTIVITY, MOVED, GIVEN = 0, 1, 2
"""What residuals are relative to: ``‖f(s)‖``, ``‖f(s) − origin‖``, or the scale on entry."""

PACKED, WORK, IMAGE, LAST_STATE, LAST_PRODUCT, SLOTS = 0, 1, 2, 3, 4, 5
"""Rows still relaxing, their products, results, and (where kept) the last iterates of results."""

UP, DOWN, SHIFT, MOVED, CENTER, KNOWN, STRAY, STRAY_PRODUCT, PAIR_SLOTS = 0, 1, 2, 3, 4, 5, 6, 7, 8
"""Results; half differences still relaxing and their products; centers and theirs, where any
moved; those that just did, packed, and theirs."""

_TILE = 8
"""Side of a tile of a transposition: of those tried (8 to 64), the best from 128 to 1024 rows."""


def tanh(value: float) -> float:
    """tanh: a rational function in float32, which vectorises; the library's in float64."""
    return math.tanh(value)


@overload(tanh, inline="always", jit_options={"error_model": "numpy"})
def _tanh(value):  # type: ignore[no-untyped-def]
    if value != numba.float32:  # the type, while compiling
        return lambda value: math.tanh(value)

    f = numba.float32

    def rational(value):  # type: ignore[no-untyped-def]
        # Largest error 3e-7 (Eigen's coefficients); comparisons keep NaN as it is.
        edge = f(7.90531110763549805)
        x = edge if value > edge else value
        x = -edge if x < -edge else x
        y = x * x
        p = f(-2.76076847742355e-16)
        p = p * y + f(2.00018790482477e-13)
        p = p * y + f(-8.60467152213735e-11)
        p = p * y + f(5.12229709037114e-08)
        p = p * y + f(1.48572235717979e-05)
        p = p * y + f(6.37261928875436e-04)
        p = p * y + f(4.89352455891786e-03)
        q = f(1.19825839466702e-06)
        q = q * y + f(1.18534705686654e-04)
        q = q * y + f(2.26843463243900e-03)
        q = q * y + f(4.89352518554385e-03)
        return x * p / q

    return rational


@numba.njit(**OPTIONS)
def _image(product, drive, state, out):  # type: ignore[no-untyped-def]
    """One row of ``f(s)`` with the squares of ``‖f(s) − s‖`` and ``‖f(s)‖``."""
    gap, size = product.dtype.type(0), product.dtype.type(0)
    for j in range(out.shape[0]):
        value = tanh(product[j] + drive[j])
        change = value - state[j]
        gap += change * change
        size += value * value
        out[j] = value
    return gap, size


@numba.njit(**OPTIONS)
def _nudged_image(drive, push, beta, known, moved, sign, out):  # type: ignore[no-untyped-def]
    """One row under one sign of the nudge."""
    for j in range(out.shape[0]):
        out[j] = tanh((drive[j] - sign * (beta * push[j])) + (known[j] + sign * moved[j]))


@numba.njit(**OPTIONS)
def _pair_squares(up, down, center, shift):  # type: ignore[no-untyped-def]
    """Squares of the changes of half difference and center, of their sum and of their sizes.

    The sum is the larger of the changes of up and down.
    """
    odd = even = cross = reach = size = up.dtype.type(0)
    point_five = up.dtype.type(0.5)
    for j in range(up.shape[0]):
        half, middle = point_five * (up[j] - down[j]), point_five * (up[j] + down[j])
        turn, drift = half - shift[j], middle - center[j]
        odd += turn * turn
        even += drift * drift
        cross += turn * drift
        reach += half * half
        size += middle * middle
    return odd, even, odd + even + 2 * abs(cross), reach, size


@numba.njit(**OPTIONS)
def _half(up, down, sign, out):  # type: ignore[no-untyped-def]
    for j in range(out.shape[0]):
        out[j] = out.dtype.type(0.5) * (up[j] + sign * down[j])


@numba.njit(**OPTIONS)
def _distance(a, b):  # type: ignore[no-untyped-def]
    total = a.dtype.type(0)
    for j in range(a.shape[0]):
        change = a[j] - b[j]
        total += change * change
    return math.sqrt(total)


@numba.njit(**OPTIONS)
def _copy(source, target):  # type: ignore[no-untyped-def]
    # Assigning to a slice would check for overlap first, at a cost that shows in short rows.
    for j in range(target.shape[0]):
        target[j] = source[j]


@numba.njit(**OPTIONS)
def activate(drive, out):  # type: ignore[no-untyped-def]
    """``tanh(drive)``."""
    for i in range(drive.shape[0]):
        for j in range(drive.shape[1]):
            out[i, j] = tanh(drive[i, j])


@numba.njit(**OPTIONS)
def evaluate(  # type: ignore[no-untyped-def]
    product, source, origin, drive, places, figures, index, rows, rule, constants, final
):
    """Evaluate ``f`` for the packed rows; set converged samples aside, pack the others.

    Row r of ``product`` and ``source`` belongs to sample ``index[r]``. ``places`` (slots, batch,
    hidden) holds the packed rows and what is set aside; ``figures`` (3, batch) the residual, the
    error bound and the scale. Returns how many rows remain (negative where ``final`` set aside
    rows that had not converged), and whether any residual was not finite.
    """
    packed, image = places[PACKED], places[IMAGE]
    keep = places.shape[0] == SLOTS
    last_state = places[LAST_STATE] if keep else image
    last_product = places[LAST_PRODUCT] if keep else image
    factor, tol, rounding, floor, spread, slack, _ = constants
    remaining, unfinished, lost = 0, 0, False
    row = np.empty(drive.shape[1], drive.dtype)
    for r in range(rows):
        i = index[r]
        gap_square, size_square = _image(product[r], drive[i], source[r], row)
        gap, size = math.sqrt(gap_square), math.sqrt(size_square)
        if rule == ACTIVITY:
            scale = max(size, floor)
        elif rule == MOVED:
            moved = _distance(row, origin[i])
            # A sample that the nudge does not move has nothing to relax.
            scale = np.inf if moved == 0 else min(slack * moved, max(size, floor))
        else:
            scale = figures[2, i]
        done = factor * gap <= tol * scale or gap <= rounding * size
        if not math.isfinite(gap):
            lost = True
        figures[0, i] = factor * gap / scale
        figures[1, i] = (factor * gap + spread * size) / (1 - factor) if spread < np.inf else np.inf
        figures[2, i] = scale
        if done or final:
            _copy(row, image[i])
            if keep:
                _copy(source[r], last_state[i])
                _copy(product[r], last_product[i])
            if not done:
                unfinished += 1
        else:
            _copy(row, packed[remaining])
            index[remaining] = i
            remaining += 1
    if lost:
        # The caller stops here: what is packed is all there is.
        for r in range(remaining):
            _copy(packed[r], image[index[r]])
    return (-unfinished if final else remaining), lost


@numba.njit(**OPTIONS)
def evaluate_pair(  # type: ignore[no-untyped-def]
    drive, push, beta, center, known, places, figures, index, astray, rows, constants, first, final
):
    """One step of `kernels.reference.relax_pair` for the samples ``index[:rows]``.

    Row r of ``places[SHIFT]`` and ``places[MOVED]`` belongs to sample ``index[r]`` (zero at the
    ``first`` step); all else is by sample. Packs the half differences that go on, and the centers
    that drifted, whose samples ``astray`` names. Returns how many rows remain (negative where
    ``final`` left some that had not converged), whether a residual was not finite, and how many
    centers drifted.
    """
    factor, tol, rounding, floor, spread, slack, allowance = constants
    kind = drive.dtype.type
    plus, minus, nudge = kind(1), kind(-1), kind(beta)
    zero = np.zeros(drive.shape[1], drive.dtype)
    remaining, unfinished, drifted, lost = 0, 0, 0, False
    for r in range(rows):
        i = index[r]
        up, down = places[UP, i], places[DOWN, i]
        shift = zero if first else places[SHIFT, r]
        moved = zero if first else places[MOVED, r]
        _nudged_image(drive[i], push[i], nudge, known[i], moved, plus, up)
        _nudged_image(drive[i], push[i], nudge, known[i], moved, minus, down)
        odd, even, gap, reach, size = _pair_squares(up, down, center[i], shift)
        odd, even, gap = math.sqrt(odd), math.sqrt(even), math.sqrt(gap)
        reach, size = math.sqrt(reach), math.sqrt(size)
        scale = max(size, floor)
        if not math.isfinite(gap):
            lost = True
        apart = factor * odd <= slack * tol * reach or odd <= rounding * size
        done = (apart and factor * gap <= tol * scale) or gap <= rounding * size
        figures[0, i] = factor * gap / scale
        figures[1, i] = (factor * gap + spread * size) / (1 - factor) if spread < np.inf else np.inf
        figures[2, i] = scale
        if done:
            continue
        if final:
            unfinished += 1
            continue
        _half(up, down, minus, places[SHIFT, remaining])
        if factor * even > allowance * tol * scale:
            _half(up, down, plus, places[STRAY, drifted])
            astray[drifted] = i
            drifted += 1
        index[remaining] = i
        remaining += 1
    return (-unfinished if final else remaining), lost, drifted


@numba.njit(**OPTIONS)
def recentre(places, astray, count):  # type: ignore[no-untyped-def]
    """Put drifted centers and their products where their samples are."""
    for r in range(count):
        _copy(places[STRAY, r], places[CENTER, astray[r]])
        _copy(places[STRAY_PRODUCT, r], places[KNOWN, astray[r]])


@numba.njit(**OPTIONS)
def normalise(cotangent, direction, rms):  # type: ignore[no-untyped-def]
    """See `kernels.reference.normalise`; squares of float32 cannot underflow in a double."""
    batch, hidden = cotangent.shape
    kind = cotangent.dtype.type
    for i in range(batch):
        total, peak = 0.0, 1.0
        for j in range(hidden):
            value = np.float64(cotangent[i, j])
            total += value * value
        if total < 1e-200:
            peak = 0.0
            for j in range(hidden):
                peak = max(peak, abs(np.float64(cotangent[i, j])))
            peak = 1.0 if peak == 0 else peak
            total = 0.0
            for j in range(hidden):
                value = np.float64(cotangent[i, j]) / peak
                total += value * value
        size = math.sqrt(total / hidden)
        rms[i] = kind(peak * size)
        inverse = 1.0 / size if size > 0 else 1.0
        for j in range(hidden):
            direction[i, j] = kind(np.float64(cotangent[i, j]) / peak * inverse)


@numba.njit(**OPTIONS)
def contrast(up, down, weight, delta, mean, total):  # type: ignore[no-untyped-def]
    """See `kernels.reference.contrast`; ``total`` starts at zero."""
    half = up.dtype.type(0.5)
    for i in range(up.shape[0]):
        w = weight[i]
        for j in range(up.shape[1]):
            change = w * (down[i, j] - up[i, j])
            delta[i, j] = change
            mean[i, j] = half * (up[i, j] + down[i, j])
            total[j] += change


@numba.njit(**OPTIONS)
def symmetrise(matrix, out, factor):  # type: ignore[no-untyped-def]
    """``factor·(M + Mᵀ)``, tile by tile; ``out`` may be ``matrix`` itself."""
    n = matrix.shape[0]
    whole = n - n % _TILE
    scale = matrix.dtype.type(factor)
    tile = np.empty((_TILE, _TILE), matrix.dtype)
    for top in range(0, whole, _TILE):
        for left in range(top, whole, _TILE):
            for b in range(_TILE):
                for a in range(_TILE):
                    tile[b, a] = matrix[left + b, top + a]
            for a in range(_TILE):
                for b in range(_TILE):
                    value = scale * (matrix[top + a, left + b] + tile[b, a])
                    out[top + a, left + b] = value
                    tile[b, a] = value
            for b in range(_TILE):
                for a in range(_TILE):
                    out[left + b, top + a] = tile[b, a]
    for a in range(n):
        for b in range(max(a, whole), n):
            value = scale * (matrix[a, b] + matrix[b, a])
            out[a, b] = value
            out[b, a] = value
