"""What Numba compiles for the nudged phases of stacks, which relax a shift and its center.

Rows and columns are those of `chain_loops`.
"""

from __future__ import annotations

import math

import numpy as np

from toreqprop.kernels.chain_loops import keep, layer_change, part_of
from toreqprop.kernels.compiling import compiled
from toreqprop.kernels.loops import _copy, _pair_image
from toreqprop.kernels.vectors import dot, links, squares, stiffness


@compiled
def _keep_pair(middle, shift, bounds, sample, free, places, moved):  # type: ignore[no-untyped-def]
    """Both phases of a sample; and the squares of how far they are from ``free`` and apart are
    added to ``moved`` (layers, 2)."""
    keep(middle, bounds, sample, places[0])
    keep(shift, bounds, sample, places[1])
    for layer in range(bounds.shape[0] - 1):
        a, b = bounds[layer], bounds[layer + 1]
        before = part_of(middle, free, bounds, layer, sample)
        moved[layer, 0] += squares(middle[a:b], before)[0]
        moved[layer, 1] += squares(shift[a:b], shift[a:b])[1]


@compiled
def settle_shift(image, up, down, push, place, strength, pushed, rows, middle, half):  # type: ignore[no-untyped-def]
    """Both images of one layer under ``u ± (up + strength·down − push)``, u that of ``image``."""
    factor = up.dtype.type(strength)
    a, b = place
    total = np.empty(b - a, up.dtype)
    for i in range(rows):
        above, aside = down[i, a:b], push[i, a:b]
        if pushed and strength != 0:
            for j in range(total.shape[0]):
                total[j] = aside[j] - factor * above[j]
        elif pushed:
            for j in range(total.shape[0]):
                total[j] = aside[j]
        else:
            for j in range(total.shape[0]):
                total[j] = -factor * above[j]
        _pair_image(
            image[i, a:b], total, up.dtype.type(1), up[i, a:b], middle[i, a:b], half[i, a:b]
        )


@compiled
def _amplitudes(own, link, force, heat, work, found):  # type: ignore[no-untyped-def]
    """How much of its image and of its change each layer's shift gets, beyond the image itself.

    The least energy of shifts ``y_l + a_l·y_l + b_l·g_l``: with y_l and g_l in turn a symmetric
    system of equations that reaches three back, in units of its diagonal, solved by elimination.
    ``found`` (layers, 2) is all zero where it has no minimum, or one that is far away. A layer whose
    shift is too small to be squared stays as it is; a change that is the image over again, as the
    first is, tells nothing and is left out. ``own`` and ``link`` are what `stiffness` and `links`
    found, ``force`` what pulls along y and g, ``work`` (2·layers, 6) is space. Returns whether all of it is no longer than the change was.
    """
    layers = own.shape[0]
    count = 2 * layers
    band, right, unit, pivot = work[:, :3], work[:, 3], work[:, 4], work[:, 5]
    work[:], found[:] = 0, 0
    pivot[:] = 1
    for layer in range(layers):
        t = heat[layer]
        if own[layer, 0] > _TINY:
            unit[2 * layer] = 1 / math.sqrt(t * own[layer, 0])
            if own[layer, 2] > _TINY:
                unit[2 * layer + 1] = 1 / math.sqrt(t * own[layer, 2])
    for layer in range(layers):
        t, y, g = heat[layer], 2 * layer, 2 * layer + 1
        band[g, 2] = t * own[layer, 1] * unit[y] * unit[g]
        if layer > 0:
            band[y, 1] = -t * link[layer, 0] * unit[y] * unit[y - 2]
            band[y, 2] = -t * link[layer, 1] * unit[y] * unit[y - 1]
            band[g, 0] = -t * link[layer, 2] * unit[g] * unit[y - 2]
            band[g, 1] = -t * link[layer, 3] * unit[g] * unit[y - 1]
        right[y], right[g] = force[layer, 0] * unit[y], force[layer, 1] * unit[g]
    for i in range(count):
        if unit[i] == 0:
            continue
        for k in range(3):  # entry (i, i − 3 + k) becomes that of the factor L
            at = i - 3 + k
            if at < 0 or unit[at] == 0:
                band[i, k] = 0.0
                continue
            value = band[i, k]
            for m in range(k):
                if i - 3 + m >= 0:
                    value -= band[i, m] * pivot[i - 3 + m] * band[at, 3 - k + m]
            band[i, k] = value / pivot[at]
        for k in range(3):
            if i - 3 + k >= 0:
                pivot[i] -= band[i, k] * band[i, k] * pivot[i - 3 + k]
                right[i] -= band[i, k] * right[i - 3 + k]
        if i % 2 == 0 and not pivot[i] > 1e-3:
            return False
        if not pivot[i] > 1e-4:
            pivot[i], right[i], unit[i] = 1.0, 0.0, 0.0
            band[i] = 0
    for i in range(count - 1, -1, -1):
        value = right[i] / pivot[i]
        for k in range(1, 4):
            if i + k < count:
                value -= band[i + k, 3 - k] * right[i + k]
        right[i] = value if unit[i] != 0 else 0.0
    way = change = 0.0
    for layer in range(layers):
        one, two = right[2 * layer] * unit[2 * layer], right[2 * layer + 1] * unit[2 * layer + 1]
        if not (-0.8 < one < 4 and abs(two) < _FARTHEST):
            found[:] = 0
            return False
        found[layer, 0], found[layer, 1] = one, two
        square = one * one * own[layer, 0] + 2 * one * two * own[layer, 1]
        way += heat[layer] * (square + two * two * own[layer, 2])
        change += heat[layer] * own[layer, 2]
    return way <= change


_TINY = 1e-34
"""Below that, squares of single numbers begin to leave the range of float32."""

_FARTHEST = 1e3
"""Factors beyond it are made of rounding."""


@compiled
def _along(image, start, one, two, out):  # type: ignore[no-untyped-def]
    """``y + one·y + two·(y − start)``."""
    whole, back = out.dtype.type(1 + one + two), out.dtype.type(two)
    for j in range(out.shape[0]):
        out[j] = whole * image[j] - back * start[j]


@compiled
def balance(  # type: ignore[no-untyped-def]
    half, accelerated, fresh, falling, middle, shift, center, up, rising, down, heat, bounds, constants, final,
    rows, ledger, done, free, places, moved,
):  # fmt: skip
    """After a pass from ``shift`` to ``fresh``: what has converged, and the next start.

    ``up`` has the products with ``shift``, ``rising`` those with ``fresh``, ``falling`` what the way
    down found. What pulls at the image of a pass is ``γWᵀ(y − m)``, y above the layer and m as the
    way down found it, at the top the start; so products upwards are all that `_amplitudes` needs.
    After the first ``half`` of the first pass alone nothing has come up yet: that is what pulls, and
    it is known from the products ``down``. Samples for which this is enough end there.
    A sample's residual is its largest last change, or, where that is small enough, how far its center
    has drifted. Columns of ``ledger``: place among all, residual, layer; ``free``, ``places`` and
    ``moved`` are those of `_keep_pair`. Returns how many samples go on, whether all is finite, and
    the largest drift.
    """
    tol, rounding, floor, slack = constants[0], constants[1], constants[2], constants[3]
    layers = bounds.shape[0] - 1
    own, link, force = np.zeros((layers, 3)), np.zeros((layers, 6)), np.zeros((layers, 2))
    work = np.zeros((2 * layers, 6))
    factors, remaining, finite, drifted = np.zeros((layers, 2)), 0, True, 0.0
    for i in range(rows):
        if done[i]:
            continue
        near = False
        worst, drift, where = 0.0, 0.0, 0.0
        for layer in range(layers):
            a, b = bounds[layer], bounds[layer + 1]
            y, x = fresh[i, a:b], shift[i, a:b]
            change = layer_change(y, x, rounding, 0.0) / slack
            if not change <= worst:
                worst, where = change, float(layer)
            if accelerated:
                stiffness(y, x, center[i, a:b], own[layer])
                if layer > 0 and half:
                    below = bounds[layer - 1]
                    link[layer, 0] = dot(fresh[i, below:a], down[i, below:a])
                    force[layer, 0] = heat[layer] * link[layer, 0]
                elif layer > 0:
                    m = falling[i, a:b] if layer + 1 < layers else x
                    links(y, x, rising[i, a:b], up[i, a:b], m, link[layer])
                    force[layer - 1, 0] = heat[layer] * link[layer, 4]
                    force[layer - 1, 1] = heat[layer] * link[layer, 5]
        if accelerated:
            near = _amplitudes(own, link, force, heat, work, factors)
        if not worst > tol:
            for layer in range(layers):
                a, b = bounds[layer], bounds[layer + 1]
                size = floor * math.sqrt(b - a)
                away = layer_change(middle[i, a:b], center[i, a:b], rounding, size)
                drift = away if not away <= drift else drift
        ledger[i, 1] = max(worst, drift)
        ledger[i, 2] = where
        if not math.isfinite(worst + drift):
            ledger[i, 1] = np.nan
            finite = False
        done[i] = ledger[i, 1] <= tol
        if half and not done[i]:
            remaining += 1
            continue
        if done[i] and not near or (final and not done[i]) or not finite:
            _keep_pair(middle[i], fresh[i], bounds, int(ledger[i, 0]), free, places, moved)
            continue
        for layer in range(layers):
            one, two = factors[layer]
            a, b = bounds[layer], bounds[layer + 1]
            _along(fresh[i, a:b], shift[i, a:b], one, two, shift[i, a:b])
            if layer + 1 < layers and not done[i]:
                a, b = b, bounds[layer + 2]
                _along(rising[i, a:b], up[i, a:b], one, two, up[i, a:b])
        if done[i]:
            _keep_pair(middle[i], shift[i], bounds, int(ledger[i, 0]), free, places, moved)
            continue
        remaining += 1
        drifted = max(drifted, drift)
    if not finite:
        for i in range(rows):
            if not done[i]:
                _keep_pair(middle[i], fresh[i], bounds, int(ledger[i, 0]), free, places, moved)
    return remaining, finite, drifted
