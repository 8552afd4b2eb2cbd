"""What Numba compiles: the passes over memory between two matrix products.

Every operation rounds as it is written: no reassociation, no contraction into fused products, so
that the same numbers come out of a fresh compilation, of the cache and of another processor. Sums
run in `LANES` partial sums, which vectorise as they stand. Nothing assumes that values are finite:
a NaN must be seen.
"""

from __future__ import annotations

import logging
import math
import multiprocessing
from typing import Any

import numba
import numpy as np
from numba.extending import overload


def _probe() -> None:
    """Compiled nowhere; only asks where it would be kept."""


def _can_cache() -> bool:
    """Whether compiled code can be kept; not where home and package are both read-only."""
    try:
        numba.njit(cache=True)(_probe)
    except RuntimeError:
        if multiprocessing.parent_process() is None:  # said once, not by every worker
            logging.getLogger("toreqprop").warning(
                "Compiled code cannot be kept, as neither the package nor the home folder can be "
                "written: it is compiled anew in every process. To change that, set "
                "NUMBA_CACHE_DIR."
            )
        return False
    return True


OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "cache": _can_cache()}

PACKED, WORK, IMAGE, LAST_STATE, LAST_PRODUCT, SLOTS = 0, 1, 2, 3, 4, 5
"""Rows still relaxing, their products, results, and the last iterates of results."""

MIDDLE, HALF, SHIFT, MOVED, CENTER, KNOWN, STRAY, STRAY_PRODUCT, PAIR_SLOTS = range(9)
"""Results; half differences still relaxing and their products; centers and theirs, where any
moved; those that just did, packed, and theirs."""

LANES = 8

_TILE = 8
"""Side of a tile of a transposition: of those tried (8 to 64), the best from 128 to 1024 rows."""


def tanh(value: float) -> float:
    """tanh: a rational function in float32, which vectorises; the library's in float64."""
    return math.tanh(value)


@overload(tanh, jit_options={"error_model": "numpy"})
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
def _squared_distance(a, b, lanes):  # type: ignore[no-untyped-def]
    """``‖a − b‖²``; ``lanes`` is scratch."""
    count = a.shape[0]
    whole = count - count % LANES
    for k in range(LANES):
        lanes[k] = 0
    for j in range(0, whole, LANES):
        for k in range(LANES):
            change = a[j + k] - b[j + k]
            lanes[k] += change * change
    for j in range(whole, count):
        change = a[j] - b[j]
        lanes[0] += change * change
    return _total(lanes)


@numba.njit(**OPTIONS)
def _square(a, lanes):  # type: ignore[no-untyped-def]
    """``‖a‖²``; ``lanes`` is scratch."""
    count = a.shape[0]
    whole = count - count % LANES
    for k in range(LANES):
        lanes[k] = 0
    for j in range(0, whole, LANES):
        for k in range(LANES):
            lanes[k] += a[j + k] * a[j + k]
    for j in range(whole, count):
        lanes[0] += a[j] * a[j]
    return _total(lanes)


@numba.njit(**OPTIONS)
def _total(lanes):  # type: ignore[no-untyped-def]
    total = 0.0
    for k in range(LANES):
        total += lanes[k]
    return total


@numba.njit(**OPTIONS)
def _image(product, drive, out):  # type: ignore[no-untyped-def]
    """One row of ``f(s)``."""
    for j in range(out.shape[0]):
        out[j] = tanh(product[j] + drive[j])


@numba.njit(**OPTIONS)
def _pair_image(drive, push, known, moved, middle, half):  # type: ignore[no-untyped-def]
    """One row of both images; see `kernels.reference.tanh_pair`."""
    one = drive.dtype.type(1)
    edge = one - drive.dtype.type(np.finfo(drive.dtype).eps)
    for j in range(middle.shape[0]):
        s, t = tanh(drive[j] + known[j]), tanh(moved[j] - push[j])
        t = edge if t > edge else t
        t = -edge if t < -edge else t
        a, b = s * s, t * t
        whole = one / (one - a * b)
        middle[j] = s * (one - b) * whole
        half[j] = t * (one - a) * whole


@numba.njit(**OPTIONS)
def _copy(source, target):  # type: ignore[no-untyped-def]
    # Assigning to a slice would check for overlap first, at a cost that shows in short rows.
    for j in range(target.shape[0]):
        target[j] = source[j]


@numba.njit(**OPTIONS)
def normalise(cotangent, largest, direction, scale):  # type: ignore[no-untyped-def]
    """`kernels.reference.normalise`, row by row; ``largest`` is `LARGEST_PUSH`."""
    hidden = cotangent.shape[1]
    kind = cotangent.dtype.type
    lanes = np.empty(LANES, cotangent.dtype)
    for i in range(cotangent.shape[0]):
        row, out = cotangent[i], direction[i]
        peak = kind(0)
        for j in range(hidden):
            size = abs(row[j])
            peak = size if size > peak else peak
        whole = peak if peak > 0 else kind(1)
        for j in range(hidden):
            out[j] = row[j] / whole
        size = kind(max(math.sqrt(_square(out, lanes) / hidden), 1 / largest))
        for j in range(hidden):
            out[j] = out[j] / size
        scale[i] = peak * size


@numba.njit(**OPTIONS)
def activate(drive, out):  # type: ignore[no-untyped-def]
    """``tanh(drive)``."""
    for i in range(drive.shape[0]):
        for j in range(drive.shape[1]):
            out[i, j] = tanh(drive[i, j])


@numba.njit(**OPTIONS)
def evaluate(drive, places, residual, index, rows, constants, final):  # type: ignore[no-untyped-def]
    """Evaluate ``f`` for the packed rows; set converged samples aside, pack the others.

    Row r of ``places[PACKED]`` and ``places[WORK]`` belongs to sample ``index[r]``. ``places``
    (slots, batch, hidden) also holds what is set aside. Returns how many rows remain (negative
    where ``final`` set aside rows that had not converged), and whether a residual was not finite.
    """
    packed, work, image = places[PACKED], places[WORK], places[IMAGE]
    factor, tol, rounding, floor, _, _ = constants
    remaining, unfinished, lost = 0, 0, False
    row, lanes = np.empty(drive.shape[1], drive.dtype), np.empty(LANES, drive.dtype)
    for r in range(rows):
        i = index[r]
        _image(work[r], drive[i], row)
        gap = math.sqrt(_squared_distance(row, packed[r], lanes))
        size = math.sqrt(_square(row, lanes))
        if not math.isfinite(gap):
            lost = True
        residual[i] = 0 if gap <= rounding * size else factor * gap / max(size, floor)
        done = residual[i] <= tol
        if done or final or lost:
            _copy(row, image[i])
            _copy(packed[r], places[LAST_STATE, i])
            _copy(work[r], places[LAST_PRODUCT, i])
            if not done:
                unfinished += 1
        else:
            _copy(row, packed[remaining])
            index[remaining] = i
            remaining += 1
    if lost:
        # The caller stops here: what is packed is all there is.
        for r in range(remaining):
            for slot in (IMAGE, LAST_STATE, LAST_PRODUCT):
                _copy(packed[r], places[slot, index[r]])
    return (-unfinished if final or lost else remaining), lost


@numba.njit(**OPTIONS)
def evaluate_pair(  # type: ignore[no-untyped-def]
    drive, push, center, known, places, residual, index, astray, rows, constants, first, final
):
    """One step of `kernels.reference.relax_pair` for the samples ``index[:rows]``.

    Row r of ``places[SHIFT]`` and ``places[MOVED]`` belongs to sample ``index[r]`` (zero at the
    ``first`` step); all else is by sample. Packs the half differences that go on, and the centers
    that drifted, whose samples ``astray`` names. Returns how many rows remain (negative where
    ``final`` left some that had not converged), whether a residual was not finite, and how many
    centers drifted.
    """
    factor, tol, rounding, floor, slack, allowance = constants
    zero, lanes = np.zeros(drive.shape[1], drive.dtype), np.empty(LANES, drive.dtype)
    remaining, unfinished, drifted, lost = 0, 0, 0, False
    for r in range(rows):
        i = index[r]
        middle, half = places[MIDDLE, i], places[HALF, i]
        shift = zero if first else places[SHIFT, r]
        moved = zero if first else places[MOVED, r]
        _pair_image(drive[i], push[i], known[i], moved, middle, half)
        turn = math.sqrt(_squared_distance(half, shift, lanes))
        drift = math.sqrt(_squared_distance(middle, center[i], lanes))
        reach, size = math.sqrt(_square(half, lanes)), math.sqrt(_square(middle, lanes))
        if not math.isfinite(turn + drift):
            lost = True
        even = 0.0 if drift <= rounding * size else factor * drift / max(size, floor)
        odd = 0.0 if turn <= rounding * reach else factor * turn / (slack * reach)
        residual[i] = max(even, odd)
        if residual[i] <= tol:
            continue
        if final:
            unfinished += 1
            continue
        _copy(half, places[SHIFT, remaining])
        if even > allowance * tol:
            _copy(middle, places[STRAY, drifted])
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
