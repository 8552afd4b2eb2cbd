"""Both phases of one dense layer by conjugate gradients, whole: `conjugate_loops` and products."""

from __future__ import annotations

import numpy as np

from toreqprop.kernels import conjugate_loops as conjugate
from toreqprop.kernels import loops
from toreqprop.kernels.compiling import compiled
from toreqprop.kernels.conjugate_loops import (
    ALONG,
    ANEW,
    FIRST,
    NOTES,
    NOTHING,
    PAIR_WAY,
    PAIR_WORK,
)
from toreqprop.kernels.loop_phases import _times, begin_drifting, follow
from toreqprop.kernels.loops import CENTER, HALF, IMAGE, IMAGES, MIDDLE, PACKED, WORK, _copy_all
from toreqprop.kernels.vectors import distances

RENEWAL = 64
"""Every so many steps a state is multiplied anew: products that are only added to would gather
rounding."""


@compiled
def relax(gemm, weight, drive, start, constants, max_steps, places, residual, history):  # type: ignore[no-untyped-def]
    """One phase, to ``places`` (see `conjugate_loops.advance`) and ``residual``, from ``start``, or
    where that has no rows from nothing, whose image is ``tanh(drive)``; ``history`` and what is
    returned as in `loop_phases.relax`."""
    batch = drive.shape[0]
    index, notes = np.empty(batch, np.int64), np.zeros((batch, NOTES))
    notes[:, conjugate._GAP] = np.inf
    loops.activate(drive, places[PACKED], index)
    stage = FIRST
    if start.shape[0]:
        _copy_all(start, places[PACKED])
        stage = ANEW
    rows, steps, lost = batch, 0, False
    while rows > 0 and steps < max_steps and not lost:
        _times(gemm, places[PACKED], weight, rows, places[WORK])
        steps += 1
        anew = steps % RENEWAL == 0
        rows, lost = conjugate.advance(
            drive, places, residual, index, notes, rows, constants, stage, anew, steps == max_steps
        )
        stage = ANEW if anew else ALONG
        if history.shape[0]:
            _copy_all(places[IMAGE], history[steps - 1])
    return steps, rows == 0, not lost


@compiled
def relax_pair(  # type: ignore[no-untyped-def]
    gemm, weight, drive, push, strength, center, image, constants, max_steps, places, residual,
    history,
):  # fmt: skip
    """Both phases of `conjugate_loops.advance_pair`, to ``places`` and ``residual``; ``history``
    and what is returned as in `loop_phases.relax_pair`."""
    batch, free = drive.shape[0], image
    index, astray = np.empty(batch, np.int64), np.empty(batch, np.int64)
    notes = np.zeros((batch, NOTES))
    notes[:, conjugate._GAP] = np.inf
    drifting = np.empty((0, 0, 0), drive.dtype)
    rows, steps, lost, stage = batch, 0, False, NOTHING
    while rows > 0 and steps < max_steps and not lost:
        steps += 1
        anew = steps % RENEWAL == 0
        rows, lost, drifted = conjugate.advance_pair(
            push, strength, center, image, places, residual, index, astray, notes, rows,
            constants, stage, anew, steps == max_steps,
        )  # fmt: skip
        stage = ANEW if anew else ALONG
        if history.shape[0]:
            _copy_all(places[MIDDLE], history[2 * steps - 2])
            _copy_all(places[HALF], history[2 * steps - 1])
        if rows <= 0 or lost:
            break
        _times(gemm, places[PAIR_WAY], weight, rows, places[PAIR_WORK])
        if drifted:
            if drifting.shape[0] == 0:  # the start belongs to the caller
                drifting = begin_drifting(center, image)
                center, image = drifting[CENTER], drifting[IMAGES]
            follow(gemm, weight, drive, places[MIDDLE], drifting, astray, drifted)
    moved, size = distances(places[MIDDLE], free, places[HALF])
    return steps, rows == 0, not lost, moved, size
