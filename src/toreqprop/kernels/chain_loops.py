"""What Numba compiles for stacks of dense layers: all that is not a matrix product.

A row of an array is a sample with all its layers side by side; layer l has the columns
``bounds[l]:bounds[l + 1]``.
"""

from __future__ import annotations

import math

import numpy as np

from toreqprop.kernels.addresses import numbers_at
from toreqprop.kernels.chain_energy import least_energy
from toreqprop.kernels.compiling import helper
from toreqprop.kernels.loops import _copy, tanh
from toreqprop.kernels.vectors import apart, bends, dot, squares


@helper
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


@helper
def part_of(row, places, bounds, layer, sample):  # type: ignore[no-untyped-def]
    """A sample's part of one layer, whose numbers, of the type of ``row``, begin at an address."""
    width = bounds[layer + 1] - bounds[layer]
    return numbers_at(places[layer] + sample * width * row.itemsize, width, row)


@helper
def keep(row, bounds, sample, places):  # type: ignore[no-untyped-def]
    """Write a sample to where it belongs in each layer, which begin at ``places``."""
    for layer in range(bounds.shape[0] - 1):
        a, b = bounds[layer], bounds[layer + 1]
        _copy(row[a:b], part_of(row, places, bounds, layer, sample))


@helper
def layer_change(new, old, rounding, floor):  # type: ignore[no-untyped-def]
    """``‖new − old‖`` relative to ``‖new‖`` or the floor."""
    distance, square = squares(new, old)
    return relative(distance, square, rounding, floor)


@helper
def relative(distance, square, rounding, floor):  # type: ignore[no-untyped-def]
    """The root of a squared distance over that of a square, or over the floor."""
    gap, size = math.sqrt(distance), math.sqrt(square)
    return 0.0 if gap <= rounding * size else gap / max(size, floor)


@helper
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


@helper
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


@helper
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


@helper
def _downhill(  # type: ignore[no-untyped-def]
    images, products, slot, i, state, up, falling, count, heat, bounds, parts, work, found
):
    """How far each layer goes on from its image y along ``g = y − start``, ``h = y − last image``.

    To where the energy is smallest (`least_energy`). All that it needs are products upwards, which
    are known. What pulls at y is ``γWᵀ(y − m)`` with the states m that the way up found above each
    layer, those of the way down (``falling``), at the top the start. Along g alone where ``count``
    is one. The first of ``parts`` are `bends`. Returns whether ``found`` moves y by no more than
    the pass did.
    """
    layers, last = bounds.shape[0] - 1, slot if count < 2 else (slot + 1) % images.shape[0]
    image, rising = images[slot, i], products[slot, i]
    before = images[last, i] if count > 1 else state[i]
    own, link, force = parts
    force[layers - 1] = 0
    if count < 2:
        own[:, 2], link[:], force[:, 1] = 0, 0, 0
    for layer in range(1, layers):
        a, b = bounds[layer], bounds[layer + 1]
        y, x, q, w = image[a:b], state[i, a:b], before[a:b], rising[a:b]
        m = falling[i, a:b] if layer + 1 < layers else x
        link[layer, 0], link[layer, 2], pull = apart(y, x, q, m, w, up[i, a:b])
        force[layer - 1, 0] = heat[layer] * pull
        if count > 1:
            risen = products[last, i, a:b]
            link[layer, 1], link[layer, 3], pull = apart(y, x, q, m, w, risen)
            force[layer - 1, 1] = heat[layer] * pull
    return least_energy(own, link, force, heat, work, found)


@helper
def _go(image, start, before, one, two, out):  # type: ignore[no-untyped-def]
    """``y + one·(y − start) + two·(y − before)``."""
    near, far = out.dtype.type(one), out.dtype.type(two)
    for j in range(out.shape[0]):
        y = image[j]
        out[j] = y + near * (y - start[j]) + far * (y - before[j])


@helper
def _inside(row):  # type: ignore[no-untyped-def]
    """Bring a row of tanh states back into their range."""
    edge = row.dtype.type(1) - row.dtype.type(np.finfo(row.dtype).eps)
    for j in range(row.shape[0]):
        row[j] = edge if row[j] > edge else row[j]
        row[j] = -edge if row[j] < -edge else row[j]


GROWN = 4
"""So often in turn, or twofold at once, a residual may grow before a pass is taken as it is."""


@helper
def advance(  # type: ignore[no-untyped-def]
    images, products, slot, memory, state, up, falling, heat, bounds, constants, final, rows,
    ledger, done, places,
):  # fmt: skip
    """After a pass from ``state`` to ``images[slot]``: what has converged, and the next start.

    The residual of a sample is its largest change in a layer. With ``memory`` the next start, and
    what a sample that has converged ends with, is `_downhill` of the image. Columns of ``ledger``:
    the sample's place among all, its residual, the layer it is of, how many passes it knows, none
    after its residual has grown, and that residual; in the end how often it grew in turn. Returns
    how many samples go on, and whether all is finite.
    """
    tol, rounding, floor = constants[0], constants[1], constants[2]
    layers = bounds.shape[0] - 1
    last = (slot + 1) % images.shape[0]
    remaining, finite = 0, True
    parts = np.zeros((layers, 3)), np.zeros((layers, 6)), np.zeros((layers, 2))
    work, factors = np.zeros((2 * layers, 6)), np.zeros((layers, 2))
    for i in range(rows):
        if done[i]:
            continue
        image, before, own = images[slot, i], state[i], ledger[i]
        earlier = images[last, i] if own[3] > 0 else before
        change, where = 0.0, 0.0
        for layer in range(layers):
            a, b = bounds[layer], bounds[layer + 1]
            if memory and layers > 1:
                both = bends(image[a:b], before[a:b], earlier[a:b], parts[0][layer])
            else:
                both = squares(image[a:b], before[a:b])
            size = relative(both[0], both[1], rounding, floor * math.sqrt(b - a))
            if not size <= change:
                change, where = size, float(layer)
        own[1], own[2] = change, where
        finite = finite and math.isfinite(change)
        done[i] = change <= tol
        if (final and not done[i]) or not finite:
            keep(image, bounds, int(own[0]), places)
            continue
        remaining += not done[i]
        near, known = False, products[slot, i]
        if memory and layers > 1:
            own[5] = own[5] + 1 if change > own[4] > 0 else 0
            worse = own[5] == GROWN or (not change <= 2 * own[4] and own[4] > 0)
            if worse:
                own[3], own[5] = 0, 0
            own[4] = change
            own[3] = min(own[3] + 1, 2)
            near = _downhill(
                images, products, slot, i, state, up, falling, int(own[3]), heat, bounds,
                parts, work, factors,
            )  # fmt: skip
            if worse or not (near or change <= 1):
                # Far from an equilibrium energy says little of where it is: on from the image.
                factors[:] = 0
                own[3] = 0
        if done[i] and not near:
            keep(image, bounds, int(own[0]), places)
            continue
        for layer in range(layers):
            a, b = bounds[layer], bounds[layer + 1]
            one, two = factors[layer]
            other = images[last, i, a:b] if two != 0 else before[a:b]
            _go(image[a:b], before[a:b], other, one, two, before[a:b])
            if layer + 1 < layers and not done[i]:
                a, b = b, bounds[layer + 2]
                other = products[last, i, a:b] if two != 0 else up[i, a:b]
                _go(known[a:b], up[i, a:b], other, one, two, up[i, a:b])
        if done[i]:
            _inside(before)
            keep(before, bounds, int(own[0]), places)
    if not finite:
        for i in range(rows):
            if not done[i]:
                keep(images[slot, i], bounds, int(ledger[i, 0]), places)
    return remaining, finite
