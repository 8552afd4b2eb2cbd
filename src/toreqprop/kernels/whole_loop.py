"""A training step of one dense layer in two compiled calls, as `whole_stack` has it for many.

Everything is given by addresses; `models.loop_step` has them.
"""

from __future__ import annotations

import numpy as np

from toreqprop.kernels import loop_phases
from toreqprop.kernels.balls import into_balls, out_of_balls
from toreqprop.kernels.compiling import compiled
from toreqprop.kernels.hebbian import add_bias, read_back, read_out
from toreqprop.kernels.loops import (
    HALF,
    IMAGE,
    LAST_STATE,
    MIDDLE,
    PAIR_SLOTS,
    SLOTS,
    normalise,
    weighted,
)
from toreqprop.kernels.products import matrix_at, multiply, numbers_at, outer_product


@compiled
def forward(  # type: ignore[no-untyped-def]
    gemm, given, balls, sizes, shapes, radii, cold, constants, max_steps, found, reading, gains
):
    """The recurrent weight into its ball, the drive, the free phase and what is read out of it.

    ``given``: addresses of the input, its matrix, the bias, the recurrent weight as it is used,
    the drive, the buffer of `loop_phases.relax` and the residuals; ``sizes``: batch, inputs,
    neurons. ``balls`` are the places of `into_balls`, ``reading`` and ``gains`` those of
    `read_out`. Returns what `loop_phases.relax` does; -1 steps where the drive is not finite.
    """
    (batch, inputs, hidden), like = sizes, gemm[2]
    into_balls(gemm, balls, shapes, radii, cold, found)
    weight = matrix_at(given[3], hidden, hidden, like)
    drive = matrix_at(given[4], batch, hidden, like)
    places = given[0], given[1], given[4]
    multiply(gemm, places, (batch, inputs, hidden), (inputs, inputs, hidden), (False, True))
    if not add_bias(drive, numbers_at(given[2], hidden, like)):
        return -1, False, False
    buffer = matrix_at(given[5], SLOTS * batch, hidden, like).reshape(SLOTS, batch, hidden)
    residual, nothing = numbers_at(given[6], batch, like), np.empty((0, batch, hidden), like.dtype)
    start = np.empty((0, hidden), like.dtype)
    ended = loop_phases.relax(
        gemm, weight, drive, start, constants, max_steps, buffer, residual, nothing
    )
    read_out(gemm, buffer[IMAGE], reading, gains)
    return ended


@compiled
def backward(  # type: ignore[no-untyped-def]
    gemm, given, balls, sizes, shapes, constants, max_steps, nudge, found, fresh, every, reading,
    gains,
):  # fmt: skip
    """Both nudged phases, all gradients, and that behind the ball.

    ``given``: those of `forward`, those of the cotangent, of the buffer of
    `loop_phases.relax_pair`, of its residuals, of the gradients of input matrix, bias and recurrent
    weight, and of memory for that of the weight in its ball. ``nudge``: β, the factor of a
    gradient, and the largest push; ``reading`` and ``gains`` those of `read_back`. Returns steps,
    whether all samples have converged, whether all is finite, how far the center moved, the shift's
    norm, whether a proof is due, and the largest slope of a sample.
    """
    (batch, inputs, hidden), like = sizes, gemm[2]
    weight = matrix_at(given[3], hidden, hidden, like)
    drive = matrix_at(given[4], batch, hidden, like)
    buffer = matrix_at(given[5], SLOTS * batch, hidden, like).reshape(SLOTS, batch, hidden)
    slope = matrix_at(given[7], batch, hidden, like)
    read_back(gemm, buffer[IMAGE], reading, gains, slope)
    phases = matrix_at(given[8], PAIR_SLOTS * batch, hidden, like)
    places = phases.reshape(PAIR_SLOTS, batch, hidden)
    residual, nothing = numbers_at(given[9], batch, like), np.empty((0, batch, hidden), like.dtype)
    direction, scale = np.empty((batch, hidden), like.dtype), np.empty(batch, like.dtype)
    largest = normalise(slope, nudge[2], nudge[1], direction, scale)
    if not nudge[1] * largest <= np.finfo(like.dtype).max:  # or a NaN
        return 0, False, False, 0.0, 0.0, False, largest
    steps, good, finite, moved, size = loop_phases.relax_pair(
        gemm, weight, drive, direction, nudge[0], buffer[LAST_STATE], buffer[IMAGE], constants,
        max_steps, places, residual, nothing,
    )  # fmt: skip
    # ¼w(h₊h₊ᵀ − h₋h₋ᵀ) is the symmetric part of w·shift·centerᵀ.
    weighted(scale, places[HALF], direction, numbers_at(given[11], hidden, like))
    x = matrix_at(given[0], batch, inputs, like)
    outer_product(gemm, direction, x, matrix_at(given[10], hidden, inputs, like))
    outer_product(gemm, direction, places[MIDDLE], matrix_at(given[13], hidden, hidden, like))
    balls[0, 0], balls[0, 7] = given[13], given[12]
    due = out_of_balls(balls, shapes, found, fresh, every, like)
    return steps, good, finite, moved, size, due, largest
