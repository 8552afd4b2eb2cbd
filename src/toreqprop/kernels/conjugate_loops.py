"""One dense layer by conjugate gradients: the passes over memory between two products.

At an equilibrium the energy ``E = Σ G(h) − h·drive − ½ h·Wh`` is smallest. From a state h, with
the gap ``r = tanh(drive + Wh) − h``, a step goes along a way p to where E is smallest, as it is
curved there (``A = 1/σ' − W``):

    h ← h + α·p,    p ← r + γ·p,    ⟨p, A·p_before⟩ = 0,    one product, W·p; that of h follows

These are conjugate gradients with the slope σ' as preconditioner, and only what is proposed is
quadratic: residuals are those of the network's own equations. Where a gap has grown the next step
is plain, ``h ← h + r``, and after `STRIKES` of these all of a sample's are, which contract.
"""

from __future__ import annotations

import math

import numpy as np

from toreqprop.kernels.compiling import compiled, helper
from toreqprop.kernels.loops import (
    HALF,
    IMAGE,
    LAST_PRODUCT,
    LAST_STATE,
    MIDDLE,
    MOVED,
    PACKED,
    SHIFT,
    WORK,
    _copy,
    _pair_image,
    pair_residual,
    tanh,
)
from toreqprop.kernels.vectors import curved, dot, squares

PAIR_WAY, PAIR_WORK, PAIR_SLOTS = 4, 5, 6
"""Of two phases: ways of rows still relaxing, and their products; all else is by sample."""

FIRST, ALONG, ANEW, NOTHING = 0, 1, 2, 3
"""Stages: from nothing along the first way, from where it is, to what was multiplied itself, and of
two phases whose shift is not there yet."""

STRIKES = 4
"""How often a gap may grow before a sample's steps are plain."""

LARGEST = 1e3
"""Factors beyond it are made of rounding."""

_PULL, _BEND, _TIE, _GAP, _COUNT, NOTES = range(6)
"""What is known of a sample: ``⟨p, r/σ'⟩``, ``⟨p, p/σ'⟩``, ``⟨p, Wp⟩``, the square of its gap, and
how often that has grown, negative where it just did."""


@helper
def _share(note, tie):  # type: ignore[no-untyped-def]
    """How far to go along the way."""
    note[_TIE] = tie
    stiff = note[_BEND] - tie
    if not (0 <= note[_COUNT] < STRIKES and stiff > 1e-3 * note[_BEND]):
        return 1.0
    share = note[_PULL] / stiff
    return share if abs(share) < LARGEST else 1.0


@helper
def _turn(note, gap, apart, way, turned, image, fresh, out):  # type: ignore[no-untyped-def]
    """The next way, from the gap, the last way and its product, if that was one."""
    count = abs(note[_COUNT])
    note[_COUNT] = -(count + 1) if apart > note[_GAP] else count
    note[_GAP] = apart
    more = 0.0
    if fresh or not 0 <= note[_COUNT] < STRIKES:
        own = curved(gap, gap, image)[0]
        note[_PULL], note[_BEND] = own, own
    else:
        own, late, stiff = curved(gap, way, image)
        bend = stiff - note[_TIE]
        if bend > 1e-3 * stiff:
            more = (dot(gap, turned) - late) / bend
        if not abs(more) < LARGEST:
            more = 0.0
        note[_PULL], note[_BEND] = own + more * late, own + more * (2 * late + more * stiff)
    c = gap.dtype.type(more)
    if c == 0:
        _copy(gap, out)
        return
    for j in range(gap.shape[0]):
        out[j] = gap[j] + c * way[j]


@compiled
def advance(drive, places, residual, index, notes, rows, constants, stage, anew, final):  # type: ignore[no-untyped-def]
    """Move the samples of packed ways, evaluate them, set aside those that have converged, and pack
    the ways of the others.

    Row r of ``places[PACKED]`` and ``places[WORK]`` belongs to sample ``index[r]``, all else is by
    sample: ``places``, and ``notes`` (batch, `NOTES`). Where the next stage is ``ANEW``, what is
    packed are the next states themselves. Returns how many rows remain (negative where ``final``
    set aside rows that had not converged), and whether a residual was not finite.
    """
    factor, tol, rounding, floor, _, _ = constants
    remaining, unfinished, lost, count = 0, 0, False, drive.shape[1]
    gap = np.empty(count, drive.dtype)
    for r in range(rows):
        i = index[r]
        way, turned, note = places[PACKED, r], places[WORK, r], notes[i]
        state, product, image = places[LAST_STATE, i], places[LAST_PRODUCT, i], places[IMAGE, i]
        if stage == ANEW:
            _copy(way, state)
            _copy(turned, product)
        else:
            if stage == FIRST:
                note[_PULL] = note[_BEND] = curved(way, way, way)[0]
            share = gap.dtype.type(_share(note, dot(way, turned)))
            if stage == FIRST:
                for j in range(count):
                    state[j] = share * way[j]
                for j in range(count):
                    product[j] = share * turned[j]
            else:
                for j in range(count):
                    state[j] += share * way[j]
                for j in range(count):
                    product[j] += share * turned[j]
        for j in range(count):
            image[j] = tanh(product[j] + drive[i, j])
        apart, square = squares(image, state)
        width, size = math.sqrt(apart), math.sqrt(square)
        if not math.isfinite(width):
            lost = True
        residual[i] = 0 if width <= rounding * size else factor * width / max(size, floor)
        if residual[i] <= tol:
            continue
        if final or lost:
            unfinished += 1
            continue
        if anew:
            _copy(image, places[PACKED, remaining])
        else:
            for j in range(count):
                gap[j] = image[j] - state[j]
            _turn(note, gap, apart, way, turned, image, stage == ANEW, places[PACKED, remaining])
        index[remaining] = i
        remaining += 1
    return (-unfinished if final or lost else remaining), lost


@compiled
def advance_pair(  # type: ignore[no-untyped-def]
    push, strength, center, image, places, residual, index, astray, notes, rows, constants, stage,
    anew, final,
):  # fmt: skip
    """The same of two phases, by `kernels.reference.relax_pair`: the shift goes, the center stays.

    ``image`` is that of the center; ``astray`` names the samples whose centers drifted. Returns how
    many rows remain (negative where ``final`` left some that had not converged), whether a residual
    was not finite, and how many centers drifted.
    """
    tol, allowance = constants[1], constants[5]
    weight, count = push.dtype.type(strength), push.shape[1]
    remaining, unfinished, drifted, lost = 0, 0, 0, False
    gap = np.empty(count, push.dtype)
    for r in range(rows):
        i = r if stage == NOTHING else index[r]
        way, turned, note = places[PAIR_WAY, r], places[PAIR_WORK, r], notes[i]
        shift, moved = places[SHIFT, i], places[MOVED, i]
        middle, half = places[MIDDLE, i], places[HALF, i]
        if stage == NOTHING:
            shift[:] = 0
            moved[:] = 0
        elif stage == ANEW:
            _copy(way, shift)
            _copy(turned, moved)
        else:
            share = gap.dtype.type(_share(note, dot(way, turned)))
            for j in range(count):
                shift[j] += share * way[j]
            for j in range(count):
                moved[j] += share * turned[j]
        _pair_image(image[i], push[i], weight, moved, middle, half)
        apart, even, odd, finite = pair_residual(half, shift, middle, center[i], constants)
        lost = lost or not finite
        residual[i] = max(even, odd)
        if residual[i] <= tol:
            continue
        if final:
            unfinished += 1
            continue
        if even > allowance * tol:
            astray[drifted] = i
            drifted += 1
        if anew:
            _copy(half, places[PAIR_WAY, remaining])
        else:
            for j in range(count):
                gap[j] = half[j] - shift[j]
            fresh = stage in (NOTHING, ANEW)
            _turn(note, gap, apart, way, turned, image[i], fresh, places[PAIR_WAY, remaining])
        index[remaining] = i
        remaining += 1
    return (-unfinished if final else remaining), lost, drifted
