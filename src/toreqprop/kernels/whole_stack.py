"""A training step of a stack of dense layers in two compiled calls: what `chain_phases`, `balls`,
`loops` and `hebbian` do one after the other, without Python between them.

Everything is given by addresses; `models.compiled_step` has them.
"""

from __future__ import annotations

import numpy as np

from toreqprop.kernels.balls import (
    LARGEST,
    OTHERS,
    PAIRS,
    SMALLEST,
    into_balls,
    out_of_balls,
)
from toreqprop.kernels.chain_ahead import KNOWN, LEAD, REST, SINGULAR, nothing_slow
from toreqprop.kernels.chain_phases import relax, relax_pair
from toreqprop.kernels.compiling import compiled, helper
from toreqprop.kernels.hebbian import add_bias, read_back, read_out, stack_gradients
from toreqprop.kernels.loops import _copy, normalise
from toreqprop.kernels.products import matrix_at, multiply, numbers_at


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


@compiled
def forward(  # type: ignore[no-untyped-def]
    gemm, given, balls, inside, widths, bounds, shapes, radii, cold, feedback, memory, constants,
    max_steps, found, residuals, reading, gains,
):  # fmt: skip
    """Weights into their balls, the drive, the free phase and what is read out of it.

    ``given``: addresses of the input, of all matrices, of all biases, of the drive and of the
    states, a layer after the other. ``balls`` are the places of `into_balls`, ``inside`` the layers
    they belong to, ``reading`` and ``gains`` those of `read_out`. Returns what `relax` does; no
    pass at all where a weight is too large, or too small, for a factor at its products, or where
    the drive is not finite.
    """
    layers, batch, like = widths.shape[0] - 1, residuals.shape[0], gemm[2]
    if balls.shape[0]:
        into_balls(gemm, balls, shapes, radii, cold, found)
        for k in range(balls.shape[0]):
            if not SMALLEST < found[k, 0] < LARGEST:  # or a NaN
                return 0, False, False, 0
    weights, biases = given[1 : 1 + layers], given[1 + layers : 1 + 2 * layers]
    drive = matrix_at(given[1 + 2 * layers], batch, widths[1], like)
    places = given[0], weights[0], given[1 + 2 * layers]
    sizes, strides = (batch, widths[0], widths[1]), (widths[0], widths[0], widths[1])
    multiply(gemm, places, sizes, strides, (False, True))
    if not add_bias(drive, numbers_at(biases[0], widths[1], like)):
        return 0, False, False, 0
    order = np.empty(3 * layers - 2, np.int64)
    _copy(weights[1:], order[: layers - 1])
    _copy(biases[1:], order[layers - 1 : 2 * layers - 2])
    _copy(given[2 + 2 * layers :], order[2 * layers - 2 :])
    slow, ends = _slow(found, balls, inside, widths, memory)
    ended = relax(
        gemm, drive, order, _scales(found, inside, layers), slow, ends, bounds, feedback, memory,
        constants, max_steps, residuals,
    )  # fmt: skip
    read_out(gemm, matrix_at(given[1 + 3 * layers], batch, widths[layers], like), reading, gains)
    return ended


@compiled
def backward(  # type: ignore[no-untyped-def]
    gemm, given, balls, inside, widths, bounds, shapes, feedback, memory, constants,
    recentred_most, max_steps, nudge, found, fresh, every, residuals, moved, reading, gains,
):  # fmt: skip
    """Both nudged phases under a cotangent of the top layer, or of what is read out of it, all
    gradients, and those of the weights behind their balls.

    ``given``: those of `forward`, then the cotangent, memory for its direction, the phases' means
    and half differences, a layer after the other, and the gradients, matrices and biases in turn.
    ``nudge``: β, the factor of a gradient, and the largest push; ``reading`` and ``gains`` those of
    `read_back`. Returns what `relax_pair` does, whether a proof is due, and the largest slope of a
    sample.
    """
    layers, batch, like = widths.shape[0] - 1, residuals.shape[0], gemm[2]
    top = widths[layers]
    weights, biases = given[1 : 1 + layers], given[1 + layers : 1 + 2 * layers]
    drive = matrix_at(given[1 + 2 * layers], batch, widths[1], like)
    states = given[2 + 2 * layers : 2 + 3 * layers]
    slope = matrix_at(given[2 + 3 * layers], batch, top, like)
    read_back(gemm, matrix_at(states[layers - 1], batch, top, like), reading, gains, slope)
    # What is given by its address has to be somebody's: arrays of this function end unseen.
    direction, scale = (
        matrix_at(given[3 + 3 * layers], batch, top, like),
        np.empty(batch, like.dtype),
    )
    ends = given[4 + 3 * layers : 4 + 5 * layers]
    largest = normalise(slope, nudge[2], nudge[1], direction, scale)
    if not nudge[1] * largest <= np.finfo(like.dtype).max:  # or a NaN
        return 0, False, False, 0, False, False, largest
    order = np.empty(2 * (layers - 1) + 4 * layers, np.int64)
    _copy(weights[1:], order[: layers - 1])
    _copy(biases[1:], order[layers - 1 : 2 * layers - 2])
    rest = order[2 * layers - 2 :]
    rest[:layers] = given[3 + 3 * layers]
    _copy(states, rest[layers : 2 * layers])
    _copy(ends, rest[2 * layers :])
    shares = np.zeros(layers)
    shares[layers - 1] = nudge[0]
    slow, known = _slow(found, balls, inside, widths, memory)
    passes, good, finite, layer, restless = relax_pair(
        gemm, drive, order, _scales(found, inside, layers), slow, known, shares, bounds, feedback,
        memory, constants, recentred_most, max_steps, residuals, moved,
    )  # fmt: skip
    due = False
    if not restless:
        places = np.empty(1 + 4 * layers, np.int64)
        places[0] = given[0]
        _copy(given[4 + 3 * layers :], places[1:])
        heat = np.empty(layers)
        for k in range(layers):
            heat[k] = -(feedback ** (k + 1 - layers))
        stack_gradients(gemm, places, widths, scale, heat)
        if balls.shape[0]:
            due = out_of_balls(balls, shapes, found, fresh, every, like)
    return passes, good, finite, layer, restless, due, largest
