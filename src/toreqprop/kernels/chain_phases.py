"""Both phases of a stack of dense layers, whole: passes down and up with their matrix products.

A row of an array is a sample with all its layers side by side; layer l has the columns
``bounds[l]:bounds[l + 1]``. What comes and goes has every layer in memory of its own, and is given
by the addresses where the layers begin, so that nothing is copied around a call: ``weights`` are
matrices (above, below) in rows, ``scales`` what each is multiplied with where it is used, and
``biases`` those of the same layers.
"""

from __future__ import annotations

import numpy as np

from toreqprop.kernels.addresses import numbers_at
from toreqprop.kernels.chain_ahead import KNOWN, REST, settle_ahead, shift_ahead
from toreqprop.kernels.chain_loops import advance, extrapolate, part_of, settle
from toreqprop.kernels.chain_shift import balance, settle_shift
from toreqprop.kernels.compiling import compiled, helper
from toreqprop.kernels.loops import _copy, _copy_all
from toreqprop.kernels.products import product

PACKED = 0.75
"""Samples still relaxing are packed together where they are at most this part of those that are
computed: copying them costs as much as a small product."""

HALFWAY = 0.45
"""A shift may end after the way down of a pass, where its top has not been looked at again: there
the layers below may have changed by this share of what they may after a whole pass. Gradients of
the speed table's stacks with full feedback were within 5 % in every tensor then, at their tolerance
of 0.03, from the sixteenth step of their training on; of orthogonal couplings, before it, they are
not, with whole passes neither."""

SCALED = 8
"""Passes of a shift that are scaled layer by layer: most networks settle within them."""


@helper
def _rise(gemm, source, weights, scales, bounds, layer, rows, out):  # type: ignore[no-untyped-def]
    """What comes up to a layer."""
    a, b, c = bounds[layer - 1], bounds[layer], bounds[layer + 1]
    places, scale = (a, b, c - b, b - a, True), scales[layer - 1]
    product(gemm, source, weights[layer - 1], out, rows, places, scale)


@helper
def _fall(gemm, source, weights, scales, bounds, layer, rows, out):  # type: ignore[no-untyped-def]
    """What comes down to a layer."""
    a, b, c = bounds[layer], bounds[layer + 1], bounds[layer + 2]
    product(gemm, source, weights[layer], out, rows, (b, a, c - b, b - a, False), scales[layer])


@helper
def _place(bounds, layer):  # type: ignore[no-untyped-def]
    return bounds[layer], bounds[layer + 1]


@helper
def _temperatures(top, feedback):  # type: ignore[no-untyped-def]
    """Of each layer: one at the top, ``1/γ`` times as much a layer below."""
    found = np.empty(top + 1)
    for layer in range(top + 1):
        found[layer] = feedback ** (layer - top)
    return found


@helper
def _pack(done, rows, array):  # type: ignore[no-untyped-def]
    """The rows that go on, moved to the front."""
    at = 0
    for i in range(rows):
        if not done[i]:
            if at < i:
                _copy(array[i], array[at])
            at += 1


@helper
def _packed(done, rows):  # type: ignore[no-untyped-def]
    """How many rows go on, none of them ``done``."""
    at = 0
    for i in range(rows):
        if not done[i]:
            at += 1
    for i in range(rows):
        done[i] = i >= at
    return at


@helper
def _side_by_side(places, bounds, batch, out):  # type: ignore[no-untyped-def]
    """Layers in memory of their own, written next to each other."""
    for layer in range(bounds.shape[0] - 1):
        a, b = bounds[layer], bounds[layer + 1]
        for i in range(batch):
            _copy(part_of(out[i], places, bounds, layer, i), out[i, a:b])


@helper
def _biases(places, bounds, like):  # type: ignore[no-untyped-def]
    """Of all layers side by side; that of the first is in its drive."""
    found = np.zeros(bounds[-1], like.dtype)
    for layer in range(1, bounds.shape[0] - 1):
        a, b = bounds[layer], bounds[layer + 1]
        _copy(numbers_at(places[layer - 1], b - a, like), found[a:b])
    return found


@compiled
def relax(  # type: ignore[no-untyped-def]
    gemm, drive, given, scales, slow, ends, bounds, feedback, memory, constants, max_steps,
    residuals,
):  # fmt: skip
    """One phase, to ``residuals`` and the memory that is ``given``: addresses of weights and
    biases, of the states that are found, and of those it starts from; without any, from a way up,
    and what is known of couplings (`chain_ahead`): ``slow``, and the addresses ``ends`` of their
    left and right vectors.

    A pass writes its images and products into the slot of its turn. Without ``memory`` the next
    starts there; with it, from where the energy is smallest along the last two changes
    (`chain_loops.advance`); products, being linear, are mixed alike. Returns passes, whether all
    samples have converged, whether all is finite, and the layer with the largest residual.
    """
    batch, total = drive.shape[0], bounds[-1]
    top, slots, turn = bounds.shape[0] - 2, 2 if memory else 1, 0
    weights, biases = given[:top], given[top : 2 * top]
    places, start = given[2 * top : 3 * top + 1], given[3 * top + 1 :]
    images = np.empty((slots, batch, total), drive.dtype)
    products = np.empty((slots, batch, total), drive.dtype)
    space = np.empty((4, batch, total), drive.dtype)
    state, up, down, falling = space[0], space[1], space[2], space[3]
    bias = _biases(biases, bounds, drive)
    ledger, done = np.zeros((batch, 6)), np.zeros(batch, np.bool_)
    heat = _temperatures(top, feedback)
    for i in range(batch):
        ledger[i, 0] = i
        _copy(drive[i], up[i, : bounds[1]])
    if start.shape[0]:
        _side_by_side(start, bounds, batch, state)
    for layer in range(top + 1):
        if layer > 0:
            _rise(gemm, state, weights, scales, bounds, layer, batch, up)
        if start.shape[0] == 0 and layer < top and slow[layer, KNOWN] + slow[layer, REST] > 0:
            around = bounds[layer], bounds[layer + 1], bounds[layer + 2]
            settle_ahead(
                gemm, up, bias, around, slow[layer], ends[layer, 1], feedback, batch, down, state
            )
        elif start.shape[0] == 0:
            settle(up, down, bias, _place(bounds, layer), 0.0, batch, state)
    worst = 0
    steps, rows, remaining, finite = 0, batch, batch, True
    while remaining > 0 and finite and steps < max_steps:
        if remaining <= PACKED * rows:
            for slot in range(slots):
                _pack(done, rows, images[slot])
                _pack(done, rows, products[slot])
            _pack(done, rows, state)
            _pack(done, rows, up)
            _pack(done, rows, ledger)
            rows = _packed(done, rows)
        new, rising = images[turn], products[turn]
        for layer in range(top - 1, -1, -1):
            above = falling if layer + 1 < top else state
            _fall(gemm, above, weights, scales, bounds, layer, rows, down)
            found = falling if layer else new
            settle(up, down, bias, _place(bounds, layer), feedback, rows, found)
        for layer in range(1, top + 1):
            _rise(gemm, new, weights, scales, bounds, layer, rows, rising)
            share = feedback if layer < top else 0.0
            settle(rising, down, bias, _place(bounds, layer), share, rows, new)
        if top == 0:
            settle(up, down, bias, _place(bounds, 0), 0.0, rows, new)
        steps += 1
        remaining, finite = advance(
            images, products, turn, memory, state, up, falling, heat, bounds, constants,
            steps == max_steps, rows, ledger, done, places,
        )  # fmt: skip
        worst = _report(ledger, rows, residuals)
        turn = (turn + 1) % slots
    return steps, done[:rows].all(), finite, worst


@helper
def _report(ledger, rows, residuals):  # type: ignore[no-untyped-def]
    """The residuals of those still computed, and the layer of the largest."""
    largest, layer = -1.0, 0
    for i in range(rows):
        residuals[int(ledger[i, 0])] = ledger[i, 1]
        if not ledger[i, 1] <= largest:  # also true for NaN, which must not hide
            largest, layer = ledger[i, 1], int(ledger[i, 2])
            if not largest <= np.inf:
                largest = np.inf
    return layer


@compiled
def relax_pair(  # type: ignore[no-untyped-def]
    gemm, drive, given, scales, slow, ends, shares, bounds, feedback, memory, constants,
    recentred_most, max_steps, residuals, moved,
):  # fmt: skip
    """Both phases under pushes, each times its share, and their opposites, around the free
    equilibrium. The addresses ``given``: weights and biases, pushes, free states, then what is
    found, the phases' mean and half their difference. Found are ``residuals`` too, and ``moved``
    (layers, 2), norms over the batch of how far the mean is from the free states, and of the
    shift. A share of zero is a layer that is not pushed. ``slow`` and ``ends`` are those of
    `relax`: the top begins with what will come back to it.

    Passes of the shift, downwards first, as the nudge enters at the top. With ``memory`` every
    layer then goes on along its image and along what the pass changed, so that together they make
    the energy smallest (`chain_shift.balance`): without, each pass adds only the next term of a
    geometric series. A shift that has not settled after `SCALED` of them is one of many layers near
    the edge of stability: from there on passes are extrapolated from several past ones. Either only
    proposes where the next pass begins and, no farther than the last pass went, where the phase
    ends; what ends it is what a pass changes. Returns passes, whether all have converged, whether
    all is finite, the layer with the largest residual, and whether the center had to move more
    often than ``recentred_most``.
    """
    tol, drift_at, worst = constants[0], constants[4], 0
    batch, total = drive.shape[0], bounds[-1]
    top = bounds.shape[0] - 2
    weights, biases = given[:top], given[top : 2 * top]
    each = given[2 * top :].reshape(4, top + 1)
    pushes, free, places = each[0], each[1], each[2:]
    nothing = np.zeros((2, batch, total), drive.dtype)
    space = np.empty((7, batch, total), drive.dtype)
    up, shift = nothing[0], nothing[1]
    down, fresh, middle, center, push = space[0], space[1], space[2], space[3], space[4]
    rising, falling = space[5], space[6]
    bias, pushed = _biases(biases, bounds, drive), shares != 0
    _side_by_side(free, bounds, batch, center)
    for layer in range(top + 1):
        if pushed[layer]:
            a, b = bounds[layer], bounds[layer + 1]
            share = drive.dtype.type(shares[layer])
            for i in range(batch):
                given = part_of(push[i], pushes, bounds, layer, i)
                for j in range(given.shape[0]):
                    push[i, a + j] = share * given[j]
    image, heat = center, _temperatures(top, feedback)
    ledger, done = np.zeros((batch, 6)), np.zeros(batch, np.bool_)
    slots, turn, past = 1 + memory, 0, np.empty((0, batch, total), push.dtype)
    a, b = bounds[top], bounds[top + 1]
    for i in range(batch):
        ledger[i, 0] = i
        down[i, a:b] = 0
        if not pushed[top]:
            push[i, a:b] = 0
    settle_shift(image, up, down, push, _place(bounds, top), 0.0, pushed[top], batch, middle, shift)
    if top > 0 and pushed[top] and slow[top - 1, KNOWN] > 0:
        around, known = (bounds[top - 1], a, b), slow[top - 1]
        shift_ahead(gemm, image, around, known, ends[top - 1, 0], feedback, batch, shift, down)
        settle_shift(image, up, down, push, (a, b), 1.0, True, batch, middle, shift)
    passes, rows, remaining, finite, recentred = 0, batch, batch, True, 0
    while remaining > 0 and finite and passes < max_steps:
        if remaining <= PACKED * rows:
            for array in (center, push, up, shift):
                _pack(done, rows, array)
            if recentred:
                _pack(done, rows, image)
            for kept in past:
                _pack(done, rows, kept)
            _pack(done, rows, ledger)
            rows = _packed(done, rows)
        for layer in range(top - 1, -1, -1):
            above = falling if layer + 1 < top else shift
            _fall(gemm, above, weights, scales, bounds, layer, rows, down)
            found = falling if layer else fresh
            settle_shift(
                image, up, down, push, _place(bounds, layer), feedback, pushed[layer], rows,
                middle, found,
            )  # fmt: skip
        if top > 0 and (constants[3] * tol >= 1 if passes == 0 else memory > 0):
            a, b = bounds[1], bounds[top]
            for i in range(rows):
                _copy(falling[i, a:b], fresh[i, a:b])
                _copy(shift[i, b:], fresh[i, b:])
            remaining, finite, drift = balance(
                1.0 if passes == 0 else HALFWAY, memory > 0, fresh, falling, middle, shift, center,
                up, rising, down, push, heat, bounds, constants, False, rows, ledger, done, free,
                places, moved,
            )  # fmt: skip
            if remaining == 0 or not finite:
                worst, passes = _report(ledger, rows, residuals), passes + 1
                break
        for layer in range(1, top + 1):
            _rise(gemm, fresh, weights, scales, bounds, layer, rows, rising)
            share = feedback if layer < top else 0.0
            settle_shift(
                image, rising, down, push, _place(bounds, layer), share, pushed[layer], rows,
                middle, fresh,
            )  # fmt: skip
        if top == 0:
            settle_shift(
                image, up, down, push, _place(bounds, 0), 0.0, pushed[0], rows, middle, fresh
            )  # fmt: skip
        passes += 1
        remaining, finite, drift = balance(
            0.0, memory > 0 and top > 0 and passes <= SCALED, fresh, falling, middle, shift,
            center, up, rising, down, push, heat, bounds, constants, passes == max_steps, rows,
            ledger, done, free, places, moved,
        )  # fmt: skip
        worst = _report(ledger, rows, residuals)
        if memory and top and passes >= SCALED:
            if passes == SCALED:
                past = np.empty((1 + 3 * slots, batch, total), push.dtype)
                _copy_all(shift, past[0])
            else:
                _go_on(past, turn, done, rows, heat, bounds, ledger, shift, up)
                turn = (turn + 1) % slots
        if remaining > 0 and drift > drift_at * tol:
            recentred += 1
            if recentred > recentred_most:
                return passes, False, finite, worst, True
            ledger[:, 3] = 0  # what passes around another center did tells nothing
            if recentred == 1:
                image = np.empty((batch, total), drive.dtype)
            _recentre(
                gemm, drive, ledger, middle, weights, scales, bias, bounds, feedback, rows, center,
                image,
            )  # fmt: skip
    for layer in range(top + 1):
        moved[layer, 0], moved[layer, 1] = np.sqrt(moved[layer, 0]), np.sqrt(moved[layer, 1])
    return passes, done[:rows].all(), finite, worst, False


@helper
def _go_on(past, turn, done, rows, heat, bounds, ledger, shift, up):  # type: ignore[no-untyped-def]
    """Extrapolate the shifts: ``past`` has where the pass began, images, products and gaps."""
    slots = past.shape[0] // 3
    begin, images = past[0], past[1 : 1 + slots]
    products, gaps = past[1 + slots : 1 + 2 * slots], past[1 + 2 * slots :]
    weights, table = np.zeros(slots), np.zeros((slots, slots))
    for i in range(rows):
        if not done[i]:
            _copy(shift[i], images[turn, i])
            _copy(up[i], products[turn, i])
            extrapolate(
                images, products, gaps, turn, i, heat, bounds, ledger[i], table, weights, begin[i],
                up[i],
            )  # fmt: skip
            _copy(begin[i], shift[i])


@helper
def _recentre(  # type: ignore[no-untyped-def]
    gemm, drive, ledger, middle, weights, scales, bias, bounds, feedback, rows, center, image
):
    """Around the middle of both phases from now on: its image is evaluated."""
    top = bounds.shape[0] - 2
    space = np.empty((2, rows, center.shape[1]), center.dtype)
    up, down = space[0], space[1]
    for i in range(rows):
        _copy(middle[i], center[i])
        _copy(drive[int(ledger[i, 0])], up[i, : bounds[1]])
    for layer in range(top + 1):
        if layer > 0:
            _rise(gemm, center, weights, scales, bounds, layer, rows, up)
        if layer < top:
            _fall(gemm, center, weights, scales, bounds, layer, rows, down)
        share = feedback if layer < top else 0.0
        settle(up, down, bias, _place(bounds, layer), share, rows, image)
