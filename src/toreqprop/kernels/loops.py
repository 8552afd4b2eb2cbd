"""What Numba compiles: the passes over memory between two matrix products.

Every operation rounds as it is written: no reassociation, no contraction into fused products, so
that the same numbers come out of a fresh compilation, of the cache and of another processor. Sums
are those of `kernels.vectors`. Nothing assumes that values are finite: a NaN must be seen.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numba.extending import overload

from toreqprop.kernels.compiling import compiled, helper
from toreqprop.kernels.vectors import largest_magnitude, squares

IMAGE, LAST_STATE, LAST_PRODUCT, PACKED, WORK, SLOTS = range(6)
"""Results, and the last iterates of results; rows still relaxing and their products."""

MIDDLE, HALF, SHIFT, MOVED, PAIR_SLOTS = range(5)
"""Results; half differences still relaxing and their products."""

CENTER, IMAGES, STRAY, STRAY_PRODUCT, DRIFT_SLOTS = range(5)
"""Where any center moved: centers and their images; those that just moved, packed, and their
products."""


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


@helper
def _image(product, drive, out):  # type: ignore[no-untyped-def]
    """One row of ``f(s)``."""
    for j in range(out.shape[0]):
        out[j] = tanh(product[j] + drive[j])


@helper
def _pair_image(image, push, strength, moved, middle, half):  # type: ignore[no-untyped-def]
    """One row of both images, given that of the center; see `kernels.reference.tanh_pair`."""
    one = push.dtype.type(1)
    edge = one - push.dtype.type(np.finfo(push.dtype).eps)
    for j in range(middle.shape[0]):
        s, t = image[j], tanh(moved[j] - strength * push[j])
        t = edge if t > edge else t
        t = -edge if t < -edge else t
        a, b = s * s, t * t
        whole = one / (one - a * b)
        middle[j] = s * (one - b) * whole
        half[j] = t * (one - a) * whole


@helper
def _copy(source, target):  # type: ignore[no-untyped-def]
    # Assigning to a slice would check for overlap first, at a cost that shows in short rows, and
    # compile the sentence for shapes that differ, which takes seconds.
    for j in range(target.shape[0]):
        target[j] = source[j]


@helper
def _copy_all(source, target):  # type: ignore[no-untyped-def]
    """The same of two dimensions."""
    for i in range(target.shape[0]):
        _copy(source[i], target[i])


@compiled
def normalise(cotangent, largest, factor, direction, scale):  # type: ignore[no-untyped-def]
    """`kernels.reference.normalise`, row by row; ``largest`` is `LARGEST_PUSH`.

    Scales are written times ``factor``. Returns the largest of them without it; NaN where any
    entry is not finite.
    """
    batch = cotangent.shape[0]
    cotangent, direction = cotangent.reshape(batch, -1), direction.reshape(batch, -1)
    hidden = cotangent.shape[1]
    kind = cotangent.dtype.type
    top = 0.0
    for i in range(batch):
        row, out = cotangent[i], direction[i]
        peak = largest_magnitude(row)
        whole = peak if peak > 0 else kind(1)
        for j in range(hidden):
            out[j] = row[j] / whole
        mean = squares(out, out)[1] / hidden
        size = kind(max(math.sqrt(mean), 1 / largest))
        for j in range(hidden):
            out[j] = out[j] / size
        own = peak * size
        scale[i] = kind(factor) * own
        top = max(top, own) if math.isfinite(mean + own + top) else np.nan
    return top


@compiled
def images(drive, product, out):  # type: ignore[no-untyped-def]
    """``f(s)`` of every row, from its product."""
    for i in range(drive.shape[0]):
        _image(product[i], drive[i], out[i])


@compiled
def activate(drive, out, index):  # type: ignore[no-untyped-def]
    """``tanh(drive)``; and ``index`` counts its rows."""
    for i in range(drive.shape[0]):
        index[i] = i
        for j in range(drive.shape[1]):
            out[i, j] = tanh(drive[i, j])


@compiled
def evaluate(drive, places, residual, index, rows, constants, final):  # type: ignore[no-untyped-def]
    """Evaluate ``f`` for the packed rows; set converged samples aside, pack the others.

    Row r of ``places[PACKED]`` and ``places[WORK]`` belongs to sample ``index[r]``. ``places``
    (slots, batch, hidden) also holds what is set aside. Returns how many rows remain (negative
    where ``final`` set aside rows that had not converged), and whether a residual was not finite.
    """
    packed, work, image = places[PACKED], places[WORK], places[IMAGE]
    factor, tol, rounding, floor, _, _ = constants
    remaining, unfinished, lost = 0, 0, False
    row = np.empty(drive.shape[1], drive.dtype)
    for r in range(rows):
        i = index[r]
        _image(work[r], drive[i], row)
        apart, square = squares(row, packed[r])
        gap, size = math.sqrt(apart), math.sqrt(square)
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


@helper
def pair_residual(half, shift, middle, center, constants):  # type: ignore[no-untyped-def]
    """Of one sample: the square of what its shift would change by, the residuals of center and
    shift, and whether they are finite."""
    factor, _, rounding, floor, slack, _ = constants
    turned, reached = squares(half, shift)
    drifting, square = squares(middle, center)
    turn, reach = math.sqrt(turned), math.sqrt(reached)
    drift, size = math.sqrt(drifting), math.sqrt(square)
    even = 0.0 if drift <= rounding * size else factor * drift / max(size, floor)
    odd = 0.0 if turn <= rounding * reach else factor * turn / (slack * reach)
    return turned, even, odd, math.isfinite(turn + drift)


@compiled
def evaluate_pair(  # type: ignore[no-untyped-def]
    push, strength, center, image, places, residual, index, astray, rows, constants, first, final
):
    """One step of `kernels.reference.relax_pair` for the samples ``index[:rows]``, at the
    ``first`` for all of them.

    Row r of ``places[SHIFT]`` and ``places[MOVED]`` belongs to sample ``index[r]`` (zero at the
    ``first`` step); all else is by sample, ``image`` that of the center. Packs the half differences
    that go on; ``astray`` names the samples whose centers drifted. Returns how many rows
    remain (negative where ``final`` left some that had not converged), whether a residual was not
    finite, and how many centers drifted.
    """
    tol, allowance = constants[1], constants[5]
    zero, share = np.zeros(push.shape[1], push.dtype), push.dtype.type(strength)
    remaining, unfinished, drifted, lost = 0, 0, 0, False
    for r in range(rows):
        i = r if first else index[r]
        middle, half = places[MIDDLE, i], places[HALF, i]
        shift = zero if first else places[SHIFT, r]
        moved = zero if first else places[MOVED, r]
        _pair_image(image[i], push[i], share, moved, middle, half)
        _, even, odd, finite = pair_residual(half, shift, middle, center[i], constants)
        lost = lost or not finite
        residual[i] = max(even, odd)
        if residual[i] <= tol:
            continue
        if final:
            unfinished += 1
            continue
        _copy(half, places[SHIFT, remaining])
        if even > allowance * tol:
            astray[drifted] = i
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
def recentre(drive, drifting, astray, count):  # type: ignore[no-untyped-def]
    """Put drifted centers and their images where their samples are."""
    for r in range(count):
        i = astray[r]
        _copy(drifting[STRAY, r], drifting[CENTER, i])
        _image(drifting[STRAY_PRODUCT, r], drive[i], drifting[IMAGES, i])


@compiled
def weighted(weight, shift, out, total):  # type: ignore[no-untyped-def]
    """``−w_i·shift_i`` for every sample, and their sum."""
    for j in range(total.shape[0]):
        total[j] = 0
    for i in range(shift.shape[0]):
        factor, row, target = -weight[i], shift[i], out[i]
        for j in range(total.shape[0]):
            value = factor * row[j]
            target[j] = value
            total[j] += value
