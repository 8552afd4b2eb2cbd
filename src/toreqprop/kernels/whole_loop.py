"""A training step of one dense layer in two compiled calls, as `whole_stack` has it for many.

Everything is given by addresses; `models.loop_step` has them.
"""

from __future__ import annotations

import numpy as np

from toreqprop.kernels import conjugate_loops, conjugate_phases, loop_phases, loops
from toreqprop.kernels.addresses import matrix_at, numbers_at
from toreqprop.kernels.balls import into_balls, out_of_balls, placed
from toreqprop.kernels.compiling import compiled, helper
from toreqprop.kernels.hebbian import add_bias, read_back, read_out
from toreqprop.kernels.loops import (
    HALF,
    IMAGE,
    LAST_STATE,
    MIDDLE,
    SLOTS,
    normalise,
    weighted,
)
from toreqprop.kernels.products import multiply, outer_product


@helper
def _rooms(scratch, sizes, like):  # type: ignore[no-untyped-def]
    """What lies one behind the other in scratch memory: the drive, the buffer of
    `loop_phases.relax`, the residuals; and where the vectors of the norm begin."""
    batch, _, hidden = sizes
    drive = matrix_at(scratch, batch, hidden, like)
    at = scratch + batch * hidden * like.itemsize
    buffer = matrix_at(at, SLOTS * batch, hidden, like).reshape(SLOTS, batch, hidden)
    at += SLOTS * batch * hidden * like.itemsize
    return drive, buffer, numbers_at(at, batch, like), at + batch * like.itemsize


@compiled
def forward(  # type: ignore[no-untyped-def]
    gemm, own, balls, moving, sizes, shapes, radii, cold, constants, max_steps, found, gains,
    conjugate,
):  # fmt: skip
    """The recurrent weight into its ball, the drive, the free phase, by plain iteration or by
    ``conjugate`` gradients, and what is read out of it.

    ``own``: addresses of input matrix, bias, recurrent weight, and what `read_out` takes;
    ``moving``: of the input, of scratch memory and of what is read; ``sizes``: batch, inputs,
    neurons. ``balls`` are the places of `into_balls`, as `placed` takes them. Returns what
    `loop_phases.relax` does; -1 steps where the drive is not finite.
    """
    (batch, inputs, hidden), like = sizes, gemm[2]
    drive, buffer, residual, vectors = _rooms(moving[1], sizes, like)
    places = placed(balls, vectors, True)
    into_balls(gemm, places, shapes, radii, cold, found)
    weight = matrix_at(places[0, 1], hidden, hidden, like)
    given = moving[0], own[0], moving[1]
    multiply(gemm, given, (batch, inputs, hidden), (inputs, inputs, hidden), (False, True))
    if not add_bias(drive, numbers_at(own[1], hidden, like)):
        return -1, False, False
    start, nothing = np.empty((0, hidden), like.dtype), np.empty((0, batch, hidden), like.dtype)
    if conjugate:
        ended = conjugate_phases.relax(
            gemm, weight, drive, start, constants, max_steps, buffer, residual, nothing
        )
    else:
        ended = loop_phases.relax(
            gemm, weight, drive, start, constants, max_steps, buffer, residual, nothing
        )
    read_out(gemm, buffer[IMAGE], own[3:], moving[2], gains)
    return ended


@compiled
def backward(  # type: ignore[no-untyped-def]
    gemm, own, balls, moving, sizes, shapes, constants, max_steps, nudge, found, fresh, every,
    gains, conjugate,
):  # fmt: skip
    """Both nudged phases, all gradients, and that behind the ball.

    ``moving``: addresses of the input, of the scratch memory of `forward`, of the cotangent, of
    memory for the slope of the state, its direction, the buffer of `relax_pair`, its residuals and
    the gradient of the weight in its ball, one behind the other; and of the gradients of what is
    ``own``. ``nudge``: β, the factor of a gradient, and the largest push. Returns steps, whether
    all samples have converged, whether all is finite, how far the center moved, the shift's norm,
    whether a proof is due, and the largest slope of a sample.
    """
    (batch, inputs, hidden), like, size = sizes, gemm[2], gemm[2].itemsize
    drive, buffer, _, vectors = _rooms(moving[1], sizes, like)
    places = placed(balls, vectors, True)
    weight, slope = matrix_at(places[0, 1], hidden, hidden, like), moving[3]
    turned = slope + batch * hidden * size
    phases = turned + batch * hidden * size
    slots = conjugate_loops.PAIR_SLOTS if conjugate else loops.PAIR_SLOTS
    rest = phases + slots * batch * hidden * size
    inside = rest + batch * size
    slopes = matrix_at(slope, batch, hidden, like)
    read_back(gemm, buffer[IMAGE], own[3:], moving[2], moving[7:], gains, slopes)
    pair = matrix_at(phases, slots * batch, hidden, like).reshape(slots, batch, hidden)
    residual, nothing = numbers_at(rest, batch, like), np.empty((0, batch, hidden), like.dtype)
    # What is given by its address has to be somebody's: arrays of this function end unseen.
    direction, scale = matrix_at(turned, batch, hidden, like), np.empty(batch, like.dtype)
    largest = normalise(slopes, nudge[2], nudge[1], direction, scale)
    if not nudge[1] * largest <= np.finfo(like.dtype).max:  # or a NaN
        return 0, False, False, 0.0, 0.0, False, largest
    center, image = buffer[LAST_STATE], buffer[IMAGE]
    if conjugate:
        ended = conjugate_phases.relax_pair(
            gemm, weight, drive, direction, nudge[0], center, image, constants, max_steps, pair,
            residual, nothing,
        )  # fmt: skip
    else:
        ended = loop_phases.relax_pair(
            gemm, weight, drive, direction, nudge[0], center, image, constants, max_steps, pair,
            residual, nothing,
        )  # fmt: skip
    steps, good, finite, moved, reach = ended
    # ¼w(h₊h₊ᵀ − h₋h₋ᵀ) is the symmetric part of w·shift·centerᵀ.
    weighted(scale, pair[HALF], direction, numbers_at(moving[5], hidden, like))
    x = matrix_at(moving[0], batch, inputs, like)
    outer_product(gemm, direction, x, matrix_at(moving[4], hidden, inputs, like))
    outer_product(gemm, direction, pair[MIDDLE], matrix_at(inside, hidden, hidden, like))
    places[0, 0], places[0, 7] = inside, moving[6]
    due = out_of_balls(places, shapes, found, fresh, every, like)
    return steps, good, finite, moved, reach, due, largest
