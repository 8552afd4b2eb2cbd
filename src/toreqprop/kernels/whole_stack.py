"""A training step of a stack of dense layers in two compiled calls: what `chain_phases`, `balls`,
`loops` and `hebbian` do one after the other, without Python between them.

Everything is given by addresses; `models.stack_step` has them.
"""

from __future__ import annotations

import numpy as np

from toreqprop.kernels.addresses import matrix_at, numbers_at
from toreqprop.kernels.balls import (
    LARGEST,
    OTHERS,
    PAIRS,
    SMALLEST,
    into_balls,
    out_of_balls,
    placed,
)
from toreqprop.kernels.chain_ahead import KNOWN, LEAD, REST, SINGULAR, nothing_slow
from toreqprop.kernels.chain_phases import relax, relax_pair
from toreqprop.kernels.compiling import compiled, helper
from toreqprop.kernels.hebbian import add_bias, read_back, read_out, stack_gradients
from toreqprop.kernels.loops import _copy, normalise
from toreqprop.kernels.products import multiply


@helper
def _scales(found, inside, layers):  # type: ignore[no-untyped-def]
    """What the weights between layers are multiplied with: nothing is written into a ball."""
    scales = np.ones(layers - 1)
    for k in range(inside.shape[0]):
        scales[inside[k] - 1] = found[k, 1]
    return scales


@helper
def _slow(found, balls, inside, widths, memory):  # type: ignore[no-untyped-def]
    """What the balls know of each coupling (`chain_ahead`), and the addresses of its vectors.
    Plain passes begin plainly, and so does what has no bound."""
    layers = widths.shape[0] - 1
    slow, ends = nothing_slow(layers - 1), np.zeros((layers - 1, 2), np.int64)
    if memory and found.shape[0]:
        known = max(found.shape[1] - PAIRS, 0)
        wide = np.zeros((layers - 1, SINGULAR + known))
        for k in range(inside.shape[0]):
            row, factor = wide[inside[k] - 1], found[k, 1]
            if known == 0:  # saturated layers send no more back than at a norm of one
                norm = min(found[k, 0] * factor, 1.0)
                row[REST] = LEAD * norm * norm * widths[inside[k]]
                continue
            row[REST] = found[k, OTHERS] * factor * factor
            for m in range(known):
                row[SINGULAR + m] = found[k, PAIRS + m] * factor
                # Where all singular values are alike a block finds no more than it began with.
                row[KNOWN] += row[SINGULAR + m] > 0
            ends[inside[k] - 1, 0], ends[inside[k] - 1, 1] = balls[k, 3], balls[k, 4]
        slow = wide
    return slow, ends


@helper
def _rooms(scratch, batch, widths, like):  # type: ignore[no-untyped-def]
    """What lies one behind the other in scratch memory: addresses of the drive and of the states, a
    layer after the other; and where the vectors of the norms begin."""
    layers = widths.shape[0] - 1
    found = np.empty(1 + layers, np.int64)
    found[0] = scratch
    at = scratch + batch * widths[1] * like.itemsize
    for layer in range(layers):
        found[1 + layer] = at
        at += batch * widths[1 + layer] * like.itemsize
    return found, at


@compiled
def forward(  # type: ignore[no-untyped-def]
    gemm, own, balls, moving, inside, widths, bounds, shapes, radii, cold, feedback, memory,
    constants, max_steps, found, residuals, gains,
):  # fmt: skip
    """Weights into their balls, the drive, the free phase and what is read out of it.

    ``own``: addresses of matrix and bias of every layer in turn, and what `read_out` takes;
    ``moving``: of the input, of scratch memory and of what is read. ``balls`` are the places of
    `into_balls`, as `placed` takes them, ``inside`` the layers they belong to. Returns what `relax`
    does; no pass at all where a weight is too large, or too small, for a factor at its products, or
    where the drive is not finite.
    """
    layers, batch, like = widths.shape[0] - 1, residuals.shape[0], gemm[2]
    rooms, vectors = _rooms(moving[1], batch, widths, like)
    places = placed(balls, vectors, False)
    if places.shape[0]:
        into_balls(gemm, places, shapes, radii, cold, found)
        for k in range(places.shape[0]):
            if not SMALLEST < found[k, 0] < LARGEST:  # or a NaN
                return 0, False, False, 0
    drive = matrix_at(rooms[0], batch, widths[1], like)
    given = moving[0], own[0], rooms[0]
    sizes, strides = (batch, widths[0], widths[1]), (widths[0], widths[0], widths[1])
    multiply(gemm, given, sizes, strides, (False, True))
    if not add_bias(drive, numbers_at(own[1], widths[1], like)):
        return 0, False, False, 0
    order = np.empty(3 * layers - 2, np.int64)
    _couplings(own, order)
    _copy(rooms[1:], order[2 * layers - 2 :])
    slow, ends = _slow(found, places, inside, widths, memory)
    ended = relax(
        gemm, drive, order, _scales(found, inside, layers), slow, ends, bounds, feedback, memory,
        constants, max_steps, residuals,
    )  # fmt: skip
    top = matrix_at(rooms[layers], batch, widths[layers], like)
    read_out(gemm, top, own[2 * layers :], moving[2], gains)
    return ended


@helper
def _couplings(own, order):  # type: ignore[no-untyped-def]
    """Matrices and biases of all layers but the lowest, all of the one before the other."""
    above = (own.shape[0] - 3) // 2 - 1
    for k in range(above):
        order[k], order[above + k] = own[2 + 2 * k], own[3 + 2 * k]


@compiled
def backward(  # type: ignore[no-untyped-def]
    gemm, own, balls, moving, inside, widths, bounds, shapes, feedback, memory, constants,
    recentred_most, max_steps, nudge, found, fresh, every, residuals, moved, gains,
):  # fmt: skip
    """Both nudged phases under a cotangent of the top layer, or of what is read out of it, all
    gradients, and those of the weights behind their balls.

    ``moving``: addresses of the input, of the scratch memory of `forward`, of the cotangent, of
    memory for the slope of the top layer, its direction, the phases' means and half differences, a
    layer after the other; and of the gradients of what is ``own``. ``nudge``: β, the factor of a
    gradient, and the largest push. Returns what `relax_pair` does, whether a proof is due, and the
    largest slope of a sample.
    """
    layers, batch, like = widths.shape[0] - 1, residuals.shape[0], gemm[2]
    top = widths[layers]
    rooms, vectors = _rooms(moving[1], batch, widths, like)
    places = placed(balls, vectors, False)
    drive, states = matrix_at(rooms[0], batch, widths[1], like), rooms[1:]
    slope = matrix_at(moving[3], batch, top, like)
    block = batch * top * like.itemsize
    turned = moving[3] + block
    state = matrix_at(states[layers - 1], batch, top, like)
    gradients = moving[4:]
    above = gradients[2 * layers :]
    read_back(gemm, state, own[2 * layers :], moving[2], above, gains, slope)
    # What is given by its address has to be somebody's: arrays of this function end unseen.
    direction, scale = matrix_at(turned, batch, top, like), np.empty(batch, like.dtype)
    ends = np.empty(2 * layers, np.int64)
    at = turned + block
    for k in range(2 * layers):
        ends[k] = at
        at += batch * widths[1 + k % layers] * like.itemsize
    largest = normalise(slope, nudge[2], nudge[1], direction, scale)
    if not nudge[1] * largest <= np.finfo(like.dtype).max:  # or a NaN
        return 0, False, False, 0, False, False, largest
    order = np.empty(2 * (layers - 1) + 4 * layers, np.int64)
    _couplings(own, order)
    rest = order[2 * layers - 2 :]
    rest[:layers] = turned
    _copy(states, rest[layers : 2 * layers])
    _copy(ends, rest[2 * layers :])
    shares = np.zeros(layers)
    shares[layers - 1] = nudge[0]
    slow, known = _slow(found, places, inside, widths, memory)
    passes, good, finite, layer, restless = relax_pair(
        gemm, drive, order, _scales(found, inside, layers), slow, known, shares, bounds, feedback,
        memory, constants, recentred_most, max_steps, residuals, moved,
    )  # fmt: skip
    due = False
    if not restless:
        told = np.empty(1 + 4 * layers, np.int64)
        told[0] = moving[0]
        _copy(ends, told[1 : 1 + 2 * layers])
        _copy(gradients[: 2 * layers], told[1 + 2 * layers :])
        heat = np.empty(layers)
        for k in range(layers):
            heat[k] = -(feedback ** (k + 1 - layers))
        stack_gradients(gemm, told, widths, scale, heat)
        for k in range(places.shape[0]):
            # The slope behind a ball takes the gradient's place.
            places[k, 0] = gradients[2 * inside[k]]
            places[k, 7] = places[k, 0] if found[k, 2] else 0
        if places.shape[0]:
            due = out_of_balls(places, shapes, found, fresh, every, like)
    return passes, good, finite, layer, restless, due, largest
