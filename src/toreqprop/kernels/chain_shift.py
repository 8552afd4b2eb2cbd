"""What Numba compiles for the nudged phases of stacks, which relax a shift and its center.

Rows and columns are those of `chain_loops`.
"""

from __future__ import annotations

import math

import numpy as np

from toreqprop.kernels.chain_energy import least_energy
from toreqprop.kernels.chain_loops import keep, layer_change, part_of, relative
from toreqprop.kernels.compiling import helper
from toreqprop.kernels.loops import _pair_image
from toreqprop.kernels.vectors import dot, links, squares, stiffness


@helper
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


@helper
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


@helper
def _along(image, start, one, two, out):  # type: ignore[no-untyped-def]
    """``y + one·y + two·(y − start)``."""
    whole, back = out.dtype.type(1 + one + two), out.dtype.type(two)
    for j in range(out.shape[0]):
        out[j] = whole * image[j] - back * start[j]


@helper
def balance(  # type: ignore[no-untyped-def]
    half, accelerated, fresh, falling, middle, shift, center, up, rising, down, push, heat, bounds,
    constants, final, rows, ledger, done, free, places, moved,
):  # fmt: skip
    """After a pass from ``shift`` to ``fresh``: what has converged, and the next start.

    ``up`` has the products with ``shift``, ``rising`` those with ``fresh``, ``falling`` what the
    way down found. What pulls at the image y of a pass is ``γWᵀ(y − m)``, m being what the way down
    found above the layer, at the top the start; so products upwards are all that `least_energy`
    needs. After ``half`` of a pass, its way down, nothing has come up yet: what pulls is known from
    the products ``down``, and at the top, which has not moved, from the ``push`` as well. There
    samples end whose layers changed by no more than the share ``half`` of what they may, and all
    others are left as they are. A sample's residual is its largest last change, or, where that is
    small enough, how far its center has drifted. Columns of ``ledger``: place among all, residual,
    layer; ``free``, ``places`` and ``moved`` are those of `_keep_pair`. Returns how many samples go
    on, whether all is finite, and the largest drift.
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
            both = stiffness(y, x, center[i, a:b], own[layer]) if accelerated else squares(y, x)
            change = relative(both[0], both[1], rounding, 0.0) / slack
            if not change <= worst:
                worst, where = change, float(layer)
            if accelerated:
                if half > 0:
                    own[layer, 1] = own[layer, 2] = 0
                if layer > 0 and half > 0:
                    below = bounds[layer - 1]
                    told = down[i, below:a]
                    link[layer, 0] = dot(fresh[i, below:a], told)
                    known = dot(shift[i, below:a], told)
                    if layer + 1 == layers:
                        known = own[layer, 0] + dot(y, push[i, a:b])
                    force[layer, 0] = heat[layer] * (link[layer, 0] - known)
                elif layer > 0:
                    m = falling[i, a:b] if layer + 1 < layers else x
                    links(y, x, rising[i, a:b], up[i, a:b], m, link[layer])
                    force[layer - 1, 0] = heat[layer] * link[layer, 4]
                    force[layer - 1, 1] = heat[layer] * link[layer, 5]
        if accelerated:
            near = least_energy(own, link, force, heat, work, factors)
            for layer in range(layers):
                if not _SMALLEST < 1 + factors[layer, 0] < _LARGEST:
                    near, factors[:] = False, 0
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
        done[i] = ledger[i, 1] <= tol * (half if half > 0 else 1.0)
        if half > 0 and not done[i]:
            remaining += 1
            continue
        if (done[i] and not near) or (final and not done[i]) or not finite:
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


_SMALLEST, _LARGEST = 0.2, 5.0
"""How far a layer's shift is scaled at most in a pass: what is beyond was made of rounding."""
