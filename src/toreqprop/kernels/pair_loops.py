"""What Numba compiles of two nudged phases: a step of `kernels.reference.relax_pair`.

As in `kernels.loops`, every operation rounds as it is written. A loop over more arrays than those
here is not vectorised, as too many might overlap: so there are several in a row.
"""

from __future__ import annotations

import math

import numpy as np

from toreqprop.kernels.compiling import compiled
from toreqprop.kernels.loops import _copy, _image, tanh
from toreqprop.kernels.vectors import dot, squares

MIDDLE, HALF, STEP, TURNED, PART, MOVED, ALONG, PAIR_SLOTS = range(8)
"""Results; packed, what the shifts still relaxing move along, and their products; by sample, shifts
over their slopes, their products, and directions."""

CENTER, IMAGES, STRAY, STRAY_PRODUCT, DRIFT_SLOTS = range(5)
"""Where any center moved: centers and their images; those that just moved, packed, and their
products."""


@compiled
def _respond(image, push, strength, moved, middle, response):  # type: ignore[no-untyped-def]
    """One row of `kernels.reference.tanh_response`."""
    one = push.dtype.type(1)
    edge = one - push.dtype.type(np.finfo(push.dtype).eps)
    for j in range(middle.shape[0]):
        s, t = image[j], tanh(moved[j] - strength * push[j])
        t = edge if t > edge else t
        t = -edge if t < -edge else t
        a, b = s * s, t * t
        whole = one / (one - a * b)
        middle[j] = s * (one - b) * whole
        response[j] = t * whole


@compiled
def _differ(image, part, left, half, shift):  # type: ignore[no-untyped-def]
    """One row of the image of a shift, and of the shift, from φ and v."""
    one = image.dtype.type(1)
    for j in range(half.shape[0]):
        slope = one - image[j] * image[j]
        half[j] = slope * left[j]
        shift[j] = slope * part[j]


@compiled
def _subtract(part, left):  # type: ignore[no-untyped-def]
    for j in range(left.shape[0]):
        left[j] -= part[j]


@compiled
def _go_along(image, left, share, along, step):  # type: ignore[no-untyped-def]
    """One row of the next direction, and what the shift moves by along it."""
    one = image.dtype.type(1)
    for j in range(step.shape[0]):
        along[j] = left[j] + share * along[j]
        step[j] = (one - image[j] * image[j]) * along[j]


@compiled
def _weigh(image, left, out):  # type: ignore[no-untyped-def]
    """One row of ``D·ρ``."""
    one = image.dtype.type(1)
    for j in range(out.shape[0]):
        out[j] = (one - image[j] * image[j]) * left[j]


@compiled
def _move(length, along, turned, part, moved):  # type: ignore[no-untyped-def]
    for j in range(part.shape[0]):
        part[j] += length * along[j]
        moved[j] += length * turned[j]


@compiled
def evaluate_pair(  # type: ignore[no-untyped-def]
    push, strength, center, image, places, fall, residual, index, astray, rows, constants, first,
    final,
):  # fmt: skip
    """One step of `kernels.reference.relax_pair` for the samples ``index[:rows]``, at the
    ``first`` for all of them.

    Row r of ``places[STEP]`` and ``places[TURNED]`` belongs to sample ``index[r]``; all else is by
    sample, ``image`` that of the center. ``fall`` is ``⟨ρ, Dρ⟩``: zero where a sample begins anew,
    negative where it goes on by plain iteration. Packs the steps of what goes on; ``astray`` names
    the samples whose centers drifted, and their rows. Returns how many rows remain (negative where
    ``final`` left some that had not converged), whether a residual was not finite, and how many
    centers drifted.
    """
    factor, tol, rounding, floor, slack, allowance = constants
    kind = push.dtype.type
    shift, left = np.empty(push.shape[1], push.dtype), np.empty(push.shape[1], push.dtype)
    remaining, unfinished, drifted, lost = 0, 0, 0, False
    for r in range(rows):
        i = r if first else index[r]
        middle, half = places[MIDDLE, i], places[HALF, i]
        part, moved, along = places[PART, i], places[MOVED, i], places[ALONG, i]
        if first:
            fall[i] = 0
            for j in range(part.shape[0]):
                part[j], moved[j], along[j] = kind(0), kind(0), kind(0)
        elif fall[i] == 0:
            _copy(places[TURNED, r], moved)
        else:
            step, turned = places[STEP, r], places[TURNED, r]
            curvature = dot(step, along) - dot(step, turned)
            if not curvature > 0:
                fall[i] = -1
            length = fall[i] / curvature if fall[i] > 0 else 1.0
            _move(kind(length), along, turned, part, moved)
        _respond(image[i], push[i], kind(strength), moved, middle, left)
        _differ(image[i], part, left, half, shift)
        turned_by, reached = squares(half, shift)
        drifting, square = squares(middle, center[i])
        turn, reach = math.sqrt(turned_by), math.sqrt(reached)
        drift, size = math.sqrt(drifting), math.sqrt(square)
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
        _subtract(part, left)
        _weigh(image[i], left, shift)
        before, now = fall[i], dot(left, shift)
        _go_along(
            image[i], left, kind(now / before if before > 0 else 0.0), along,
            places[STEP, remaining],
        )  # fmt: skip
        if before >= 0:
            fall[i] = now if now > 0 else -1.0
        if even > allowance * tol:
            astray[0, drifted], astray[1, drifted] = i, remaining
            drifted += 1
        index[remaining] = i
        remaining += 1
    return (-unfinished if final else remaining), lost, drifted


@compiled
def gather(source, index, count, target):  # type: ignore[no-untyped-def]
    """Pack the rows ``index[:count]``."""
    for r in range(count):
        _copy(source[index[r]], target[r])


@compiled
def recentre(drive, drifting, places, fall, astray, count):  # type: ignore[no-untyped-def]
    """Put drifted centers and their images where their samples are; those begin anew."""
    for r in range(count):
        i = astray[0, r]
        _copy(drifting[STRAY, r], drifting[CENTER, i])
        image, part, half = drifting[IMAGES, i], places[PART, i], places[HALF, i]
        _image(drifting[STRAY_PRODUCT, r], drive[i], image)
        for j in range(image.shape[0]):
            slope = 1 - image[j] * image[j]
            part[j] = half[j] / slope if slope > 0 else 0
        _copy(half, places[STEP, astray[1, r]])
        fall[i] = 0
