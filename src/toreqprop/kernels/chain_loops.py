"""What Numba compiles for stacks of dense layers: all that is not a matrix product.

A row of an array is a sample with all its layers side by side; layer l has the columns
``bounds[l]:bounds[l + 1]``.
"""

from __future__ import annotations

import math

import numpy as np

from toreqprop.kernels.compiling import compiled
from toreqprop.kernels.loops import _copy, _pair_image, tanh
from toreqprop.kernels.products import numbers_at
from toreqprop.kernels.vectors import bends, dot, joints, squares


@compiled
def settle(up, down, bias, place, strength, rows, out):  # type: ignore[no-untyped-def]
    """``tanh(up + bias + strength·down)`` of one layer."""
    factor = up.dtype.type(strength)
    a, b = place
    own = bias[a:b]
    for i in range(rows):
        above, below, row = down[i, a:b], up[i, a:b], out[i, a:b]
        if strength == 0:
            for j in range(row.shape[0]):
                row[j] = tanh(below[j] + own[j])
        else:
            for j in range(row.shape[0]):
                row[j] = tanh(below[j] + own[j] + factor * above[j])


@compiled
def part_of(row, places, bounds, layer, sample):  # type: ignore[no-untyped-def]
    """A sample's part of one layer, whose numbers, of the type of ``row``, begin at an address."""
    width = bounds[layer + 1] - bounds[layer]
    return numbers_at(places[layer] + sample * width * row.itemsize, width, row)


@compiled
def keep(row, bounds, sample, places):  # type: ignore[no-untyped-def]
    """Write a sample to where it belongs in each layer, which begin at ``places``."""
    for layer in range(bounds.shape[0] - 1):
        a, b = bounds[layer], bounds[layer + 1]
        _copy(row[a:b], part_of(row, places, bounds, layer, sample))


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
def _layer_change(new, old, rounding, floor):  # type: ignore[no-untyped-def]
    """``‖new − old‖`` relative to ``‖new‖`` or the floor."""
    apart, square = squares(new, old)
    gap, size = math.sqrt(apart), math.sqrt(square)
    return 0.0 if gap <= rounding * size else gap / max(size, floor)


@compiled
def _shares(table, slot, known, digits, weights):  # type: ignore[no-untyped-def]
    """What share of each remembered image makes the smallest residual (Anderson).

    ``table`` has the products of residuals, ``known`` counts the slots in use before this one,
    ``digits`` is their rounding. The shares sum to one.
    """
    slots = weights.shape[0]
    weights[:] = 0
    weights[slot] = 1
    count = min(known, slots - 1)
    if count == 0:
        return
    one, two = (slot - 1) % slots, (slot - 2) % slots
    p = table[slot, slot] - table[slot, one]
    a = p - table[slot, one] + table[one, one]
    q = b = c = 0.0
    if count > 1:
        q = table[slot, slot] - table[slot, two]
        c = q - table[slot, two] + table[two, two]
        b = p - table[slot, two] + table[one, two]
    ridge = 10 * digits * (a + c) + 1e-30
    a += ridge
    c += ridge
    first, second = p / a, 0.0
    if count > 1:
        whole = a * c - b * b
        if whole > 10 * digits * a * c:
            first, second = (p * c - q * b) / whole, (q * a - p * b) / whole
    if not (abs(first) < 1e3 and abs(second) < 1e3):
        first = second = 0.0
    weights[slot] = 1 - first - second
    weights[one] = first
    if slots > 2:
        weights[two] = second


@compiled
def _mix(images, i, weights, a, b, out):  # type: ignore[no-untyped-def]
    """``Σ_k w_k·images_k`` in the columns from a to b."""
    kind = out.dtype.type
    first, factor = images[0, i, a:b], kind(weights[0])
    for j in range(out.shape[0]):
        out[j] = factor * first[j]
    for k in range(1, weights.shape[0]):
        factor = kind(weights[k])
        if factor != 0:
            other = images[k, i, a:b]
            for j in range(out.shape[0]):
                out[j] += factor * other[j]


@compiled
def extrapolate(  # type: ignore[no-untyped-def]
    images, products, gaps, slot, i, heat, bounds, own, table, weights, start, up
):
    """From the last passes of sample i to the ``start`` of the next, and its products ``up``.

    The shares of the passes are those that make their residual smallest in the norm of the
    temperatures ``heat``: in it a pass is self-adjoint, so that two past passes tell nearly as
    much as all. ``start`` has where the last pass began. Columns 3 and 4 of the sample's ledger
    ``own``: how many slots it knows, none after its residual has doubled, and that residual.
    """
    layers, slots = bounds.shape[0] - 1, images.shape[0]
    image = images[slot, i]
    weights[slot] = 1
    if slots > 1:
        if not own[1] <= 2 * own[4] and own[4] > 0:
            own[3] = 0
        own[4] = own[1]
        gap = gaps[slot, i]
        for j in range(gap.shape[0]):
            gap[j] = image[j] - start[j]
        known = min(int(own[3]), slots - 1) + 1
        for k in range(known):
            for m in range(k, known):
                one, two = (slot - k) % slots, (slot - m) % slots
                value = 0.0
                for layer in range(layers):
                    a, b = bounds[layer], bounds[layer + 1]
                    value += heat[layer] * dot(gaps[one, i, a:b], gaps[two, i, a:b])
                table[one, two] = value
                table[two, one] = value
        _shares(table, slot, int(own[3]), np.finfo(images.dtype).eps, weights)
        own[3] += 1
    a, b = bounds[1], bounds[layers - 1]
    _mix(images, i, weights, 0, image.shape[0], start)
    _mix(products, i, weights, a, b, up[a:b])


@compiled
def _downhill(  # type: ignore[no-untyped-def]
    images, products, slot, i, state, up, falling, count, heat, strength, bounds
):
    """How far to go on from a sample's image y along ``g = y − start`` and ``h = y − last image``.

    To where what pulls at the layers, linear in the way from y, is orthogonal to both in a norm
    that weighs layers by ``heat``: with their temperatures it is where the energy is smallest
    (conjugate gradients, with passes as preconditioner). All that it needs are products upwards,
    which are known. What pulls at y is ``γWᵀ(y − m)`` with the states m that the way up found above
    each layer, those of the way down (``falling``), at the top the start; γ is ``strength``. Along
    g alone where ``count`` is one. Returns both factors, and whether they move y by no more than
    the pass did.
    """
    layers, last = bounds.shape[0] - 1, slot if count < 2 else (slot + 1) % images.shape[0]
    image, rising = images[slot, i], products[slot, i]
    before = images[last, i] if count > 1 else state[i]
    risen = products[last, i] if count > 1 else up[i]
    gg = gh = hh = first = one_two = two_one = second = pull = other = 0.0
    for layer in range(layers):
        a, b, t = bounds[layer], bounds[layer + 1], heat[layer]
        y, x, q = image[a:b], state[i, a:b], before[a:b]
        one, mixed, two = bends(y, x, q)
        gg, gh, hh = gg + t * one, gh + t * mixed, hh + t * two
        if layer > 0:
            m = falling[i, a:b] if layer + 1 < layers else x
            ga, gc, ha, hc, ae, ce = joints(y, x, q, rising[a:b], up[i, a:b], risen[a:b], m)
            back = strength * heat[layer - 1]
            first -= (t + back) * ga
            one_two -= t * gc + back * ha
            two_one -= t * ha + back * gc
            second -= (t + back) * hc
            pull += back * ae
            other += back * ce
    first, second = first + gg, second + hh
    one_two, two_one = one_two + gh, two_one + gh
    one = two = 0.0
    if first > 0:
        one = pull / first
        whole = first * second - one_two * two_one
        if count > 1 and whole > 10 * np.finfo(image.dtype).eps * first * second:
            one = (pull * second - other * one_two) / whole
            two = (other * first - pull * two_one) / whole
    if not (abs(one) < _FARTHEST and abs(two) < _FARTHEST):
        one = two = 0.0
    return one, two, one * one * gg + 2 * one * two * gh + two * two * hh <= gg


_FARTHEST = 1e3
"""Factors beyond it are made of rounding."""


@compiled
def _go(image, start, before, one, two, out):  # type: ignore[no-untyped-def]
    """``y + one·(y − start) + two·(y − before)``."""
    near, far = out.dtype.type(one), out.dtype.type(two)
    for j in range(out.shape[0]):
        y = image[j]
        out[j] = y + near * (y - start[j]) + far * (y - before[j])


@compiled
def _inside(row):  # type: ignore[no-untyped-def]
    """Bring a row of tanh states back into their range."""
    edge = row.dtype.type(1) - row.dtype.type(np.finfo(row.dtype).eps)
    for j in range(row.shape[0]):
        row[j] = edge if row[j] > edge else row[j]
        row[j] = -edge if row[j] < -edge else row[j]


@compiled
def advance(  # type: ignore[no-untyped-def]
    images, products, slot, memory, state, up, falling, heat, strength, bounds, constants, final,
    rows, ledger, done, places,
):  # fmt: skip
    """After a pass from ``state`` to ``images[slot]``: what has converged, and the next start.

    The residual of a sample is its largest change in a layer. With ``memory`` the next start, and
    what a sample that has converged ends with, is `_downhill` of the image. Columns of ``ledger``:
    the sample's place among all, its residual, the layer it is of, how many passes it knows, none
    after its residual has doubled, and that residual. Returns how many samples go on, and whether
    all is finite.
    """
    tol, rounding, floor = constants[0], constants[1], constants[2]
    layers = bounds.shape[0] - 1
    last = (slot + 1) % images.shape[0]
    remaining, finite = 0, True
    for i in range(rows):
        if done[i]:
            continue
        image, before, own = images[slot, i], state[i], ledger[i]
        change, where = 0.0, 0.0
        for layer in range(layers):
            a, b = bounds[layer], bounds[layer + 1]
            size = floor * math.sqrt(b - a)
            relative = _layer_change(image[a:b], before[a:b], rounding, size)
            if not relative <= change:
                change, where = relative, float(layer)
        own[1], own[2] = change, where
        finite = finite and math.isfinite(change)
        done[i] = change <= tol
        if (final and not done[i]) or not finite:
            keep(image, bounds, int(own[0]), places)
            continue
        remaining += not done[i]
        one, two, near = 0.0, 0.0, True
        if memory and layers > 1:
            if not change <= 2 * own[4] and own[4] > 0:
                own[3] = 0
            own[4] = change
            own[3] = min(own[3] + 1, 2)
            one, two, near = _downhill(
                images, products, slot, i, state, up, falling, int(own[3]), heat, strength, bounds
            )
        if done[i] and (not near or not (one != 0 or two != 0)):
            keep(image, bounds, int(own[0]), places)
            continue
        _go(image, before, images[last, i] if two != 0 else before, one, two, before)
        if done[i]:
            _inside(before)
            keep(before, bounds, int(own[0]), places)
            continue
        a, known = bounds[1] if layers > 1 else bounds[layers], products[slot, i]
        other = products[last, i] if two != 0 else up[i]
        _go(known[a:], up[i, a:], other[a:], one, two, up[i, a:])
    if not finite:
        for i in range(rows):
            if not done[i]:
                keep(images[slot, i], bounds, int(ledger[i, 0]), places)
    return remaining, finite


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
            change = _layer_change(row, shift[i, a:b], rounding, 0.0)
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
                away = _layer_change(middle[i, a:b], center[i, a:b], rounding, size)
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
