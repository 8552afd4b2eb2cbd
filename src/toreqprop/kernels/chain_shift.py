"""What Numba compiles for the nudged phases of stacks, which relax a shift and its center.

Rows and columns are those of `chain_loops`.
"""

from __future__ import annotations

import math

import numpy as np

from toreqprop.kernels.chain_loops import keep, layer_change, part_of
from toreqprop.kernels.compiling import compiled
from toreqprop.kernels.loops import _copy, _pair_image
from toreqprop.kernels.vectors import dot, squares


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
def _against(shift, up, down, push, strength, pushed, work):  # type: ignore[no-untyped-def]
    """``⟨d, u⟩`` of a shift d and the preactivation u it is the image of."""
    factor = shift.dtype.type(strength)
    work = work[: shift.shape[0]]
    if strength != 0:
        for j in range(work.shape[0]):
            work[j] = up[j] + factor * down[j]
    else:
        for j in range(work.shape[0]):
            work[j] = up[j]
    if pushed:
        for j in range(work.shape[0]):
            work[j] -= push[j]
    return dot(work, shift)


@compiled
def _amplitudes(own, joint, force, heat, found):  # type: ignore[no-untyped-def]
    """The factor of each layer's shift that makes the energy of the shifts smallest.

    ``½Σ t_l a_l² own_l − Σ t_l a_l a_{l−1} joint_l + Σ t_l a_l force_l``, t_l the temperatures
    ``heat``: a symmetric tridiagonal system, in units of its diagonal. All are one where it has no
    minimum, or one that is far away; and at the equilibrium, as ``own`` is that of the shift's own
    preactivation, not of its linearisation. A layer whose shift is too small to be squared stays as
    it is, and its neighbours still feel it.
    """
    layers = own.shape[0]
    pivot, right = np.empty(layers), np.empty(layers)
    for layer in range(layers):
        found[layer] = 1.0
    for layer in range(layers):
        live = own[layer] > _TINY
        pivot[layer] = 1.0
        right[layer] = 0.0
        if not live:
            continue
        unit = math.sqrt(heat[layer] / own[layer])
        right[layer] = -force[layer] * unit
        if layer + 1 < layers and not own[layer + 1] > _TINY:
            right[layer] += heat[layer + 1] / heat[layer] * unit * joint[layer + 1]
        if layer == 0:
            continue
        if not own[layer - 1] > _TINY:
            right[layer] += unit * joint[layer]
            continue
        beside = math.sqrt(heat[layer] / heat[layer - 1] / own[layer] / own[layer - 1])
        beside *= -joint[layer]
        pivot[layer] -= beside * beside / pivot[layer - 1]
        right[layer] -= beside * right[layer - 1] / pivot[layer - 1]
        if not pivot[layer] > 1e-3:
            return
    after = 0.0
    for layer in range(layers - 1, -1, -1):
        value = right[layer]
        if layer + 1 < layers and own[layer + 1] > _TINY and own[layer] > _TINY:
            beside = math.sqrt(heat[layer + 1] / heat[layer] / own[layer + 1] / own[layer])
            value += beside * joint[layer + 1] * after
        after = value / pivot[layer]
        right[layer] = after
    for layer in range(layers):
        if own[layer] > _TINY:
            value = right[layer] / math.sqrt(heat[layer] * own[layer])
            if not 0.2 < value < 5:
                found[:] = 1.0
                return
            found[layer] = value


_TINY = 1e-34
"""Below that, squares of single numbers begin to leave the range of float32."""


@compiled
def balance(  # type: ignore[no-untyped-def]
    downwards, accelerated, fresh, middle, shift, center, up, down, push, pushed, strength, heat,
    bounds, constants, final, rows, ledger, changes, curves, done, free, places, moved,
):  # fmt: skip
    """After half a pass from ``shift`` to ``fresh``: scaled, what has converged, the next start.

    ``down`` has the products with ``fresh`` after half a pass ``downwards``, else ``up``; they are
    scaled with it. ``changes`` (samples, layers) has the last change of each layer, ``curves``
    (samples, layers) what `_against` found, negative where it has not been asked. A sample's
    residual is its largest last change, or, where that is small enough, how far its center has
    drifted. Columns of ``ledger``: place among all, residual, layer; ``free``, ``places`` and
    ``moved`` are those of `_keep_pair`. Returns how many samples go on, whether all is finite, and
    the largest drift.
    """
    tol, rounding, floor, slack = constants[0], constants[1], constants[2], constants[3]
    layers = bounds.shape[0] - 1
    own, joint, force = np.zeros(layers), np.zeros(layers), np.zeros(layers)
    factors, work = np.ones(layers), np.empty(fresh.shape[1], fresh.dtype)
    remaining, finite, drifted = 0, True, 0.0
    skipped = layers - 1 if downwards else 0
    products = down if downwards else up
    for i in range(rows):
        if done[i]:
            continue
        a, b = bounds[skipped], bounds[skipped + 1]
        _copy(shift[i, a:b], fresh[i, a:b])
        if accelerated:
            for layer in range(layers):
                a, b = bounds[layer], bounds[layer + 1]
                row = fresh[i, a:b]
                force[layer] = dot(row, push[i, a:b]) if pushed[layer] else 0.0
                if layer != skipped:
                    above = strength if layer + 1 < layers else 0.0
                    own[layer] = _against(
                        row, up[i, a:b], down[i, a:b], push[i, a:b], above, pushed[layer], work
                    )
                elif curves[i, layer] < 0:
                    own[layer] = -force[layer]
                else:
                    own[layer] = curves[i, layer]
                if downwards and layer + 1 < layers:
                    joint[layer + 1] = dot(row, products[i, a:b])
                elif not downwards and layer > 0:
                    joint[layer] = dot(row, products[i, a:b])
            _amplitudes(own, joint, force, heat, factors)
            for layer in range(layers):
                curves[i, layer] = own[layer] * factors[layer] * factors[layer]
        worst, drift, where = 0.0, 0.0, 0.0
        for layer in range(layers):
            a, b = bounds[layer], bounds[layer + 1]
            row = fresh[i, a:b]
            if factors[layer] != 1:
                factor = row.dtype.type(factors[layer])
                for j in range(row.shape[0]):
                    row[j] *= factor
                beside = layer - 1 if downwards else layer + 1
                if 0 <= beside < layers:
                    known = products[i, bounds[beside] : bounds[beside + 1]]
                    for j in range(known.shape[0]):
                        known[j] *= factor
            change = layer_change(row, shift[i, a:b], rounding, 0.0)
            change /= slack
            if layer != skipped:
                changes[i, layer] = change
            change = max(change, changes[i, layer])
            if not change <= worst:
                worst, where = change, float(layer)
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
        good = ledger[i, 1] <= tol
        if good or final or not finite:
            done[i] = good
            _keep_pair(middle[i], fresh[i], bounds, int(ledger[i, 0]), free, places, moved)
            continue
        remaining += 1
        drifted = max(drifted, drift)
        _copy(fresh[i], shift[i])
    if not finite:
        for i in range(rows):
            if not done[i]:
                _keep_pair(middle[i], fresh[i], bounds, int(ledger[i, 0]), free, places, moved)
    return remaining, finite, drifted
