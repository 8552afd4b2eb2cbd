"""Both phases of one dense layer, whole: the loops of `kernels.loops` and products between them."""

from __future__ import annotations

import numpy as np

from toreqprop.kernels import loops
from toreqprop.kernels.compiling import compiled, helper
from toreqprop.kernels.loops import (
    CENTER,
    DRIFT_SLOTS,
    HALF,
    IMAGE,
    IMAGES,
    MIDDLE,
    MOVED,
    PACKED,
    SHIFT,
    STRAY,
    STRAY_PRODUCT,
    WORK,
    _copy,
    _copy_all,
)
from toreqprop.kernels.products import product
from toreqprop.kernels.vectors import distances


@helper
def _times(gemm, rows, weight, count, out):  # type: ignore[no-untyped-def]
    """The first rows times a symmetric matrix."""
    hidden = weight.shape[0]
    product(gemm, rows, weight.ctypes.data, out, count, (0, 0, hidden, hidden, False))


@helper
def begin_drifting(center, image):  # type: ignore[no-untyped-def]
    """Room for centers that move, with those of all samples and their images."""
    drifting = np.empty((DRIFT_SLOTS, *center.shape), center.dtype)
    _copy_all(center, drifting[CENTER])
    _copy_all(image, drifting[IMAGES])
    return drifting


@helper
def follow(gemm, weight, drive, middle, drifting, astray, count):  # type: ignore[no-untyped-def]
    """Put the centers of ``astray[:count]`` where the middle of both phases is."""
    loops.gather(middle, astray, count, drifting[STRAY])
    _times(gemm, drifting[STRAY], weight, count, drifting[STRAY_PRODUCT])
    loops.recentre(drive, drifting, astray, count)


@compiled
def relax(gemm, weight, drive, start, constants, max_steps, places, residual, history):  # type: ignore[no-untyped-def]
    """One phase, to ``places`` (see `loops.evaluate`) and ``residual``, from ``start``, or where
    that has no rows from ``tanh(drive)``. Every sample's image after each step is written to
    ``history``, where that has room. Returns steps, whether all samples have converged, and whether
    all is finite."""
    batch = drive.shape[0]
    index = np.empty(batch, np.int64)
    loops.activate(drive, places[PACKED], index)
    if start.shape[0]:
        _copy_all(start, places[PACKED])
    rows, steps, lost = batch, 0, False
    while rows > 0 and steps < max_steps and not lost:
        _times(gemm, places[PACKED], weight, rows, places[WORK])
        steps += 1
        rows, lost = loops.evaluate(
            drive, places, residual, index, rows, constants, steps == max_steps
        )
        if history.shape[0]:
            _copy_all(places[IMAGE], history[steps - 1])
            for r in range(rows):
                _copy(places[PACKED, r], history[steps - 1, index[r]])
    return steps, rows == 0, not lost


@compiled
def relax_pair(  # type: ignore[no-untyped-def]
    gemm, weight, drive, push, strength, center, image, constants, max_steps, places, residual,
    history,
):  # fmt: skip
    """Both phases of `loops.evaluate_pair`, to ``places`` and ``residual``; ``history`` as in
    `relax`, middle and half. Returns steps, whether all samples have converged, whether all is
    finite, how far the middle is from ``image``, and the half difference's norm."""
    batch, free = drive.shape[0], image
    index, astray = np.empty(batch, np.int64), np.empty(batch, np.int64)
    drifting = np.empty((0, 0, 0), drive.dtype)
    rows, steps, lost = batch, 0, False
    while rows > 0 and steps < max_steps and not lost:
        steps += 1
        rows, lost, drifted = loops.evaluate_pair(
            push, strength, center, image, places, residual, index, astray, rows, constants,
            steps == 1, steps == max_steps,
        )  # fmt: skip
        if history.shape[0]:
            _copy_all(places[MIDDLE], history[2 * steps - 2])
            _copy_all(places[HALF], history[2 * steps - 1])
        if rows <= 0 or lost:
            break
        _times(gemm, places[SHIFT], weight, rows, places[MOVED])
        if drifted:
            if drifting.shape[0] == 0:  # the start belongs to the caller
                drifting = begin_drifting(center, image)
                center, image = drifting[CENTER], drifting[IMAGES]
            follow(gemm, weight, drive, places[MIDDLE], drifting, astray, drifted)
    moved, size = distances(places[MIDDLE], free, places[HALF])
    return steps, rows == 0, not lost, moved, size
