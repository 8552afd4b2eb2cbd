"""What Numba compiles for passes through any stack: one way over memory between two products.

Activations are ``σ(u) = scale·tanh(gain·u + c) + base``: tanh itself, and the logistic ones.
Every loop takes layers as rows (batch, neurons).
"""

from __future__ import annotations

import math

import numpy as np

from toreqprop.kernels.compiling import compiled
from toreqprop.kernels.loops import tanh
from toreqprop.kernels.vectors import fed_strains, overlapping, squares, strains


@compiled
def settle(below, above, strength, form, total, state):  # type: ignore[no-untyped-def]
    """``total = below + strength·above`` and ``σ(total)``."""
    kind = below.dtype.type
    share = kind(strength)
    gain, scale, base, offset = kind(form[0]), kind(form[1]), kind(form[2]), kind(form[3])
    for i in range(below.shape[0]):
        a, b, row, found = below[i], above[i], total[i], state[i]
        for j in range(row.shape[0]):
            row[j] = a[j] + share * b[j]
        for j in range(row.shape[0]):
            found[j] = scale * tanh(gain * row[j] + offset) + base


@compiled
def swing(state, parts, weights, form, total, half):  # type: ignore[no-untyped-def]
    """``total``, the weighted sum of three parts, and ``half = ½[σ(u + total) − σ(u − total)]``
    where ``σ(u) = state``; see `activations.Tanh.pair`."""
    kind = state.dtype.type
    one = kind(1)
    edge = one - kind(np.finfo(state.dtype).eps)
    gain, scale, base = kind(form[0]), kind(form[1]), kind(form[2])
    unit = one / scale
    first, second, third = kind(weights[0]), kind(weights[1]), kind(weights[2])
    for i in range(state.shape[0]):
        a, b, c = parts[0][i], parts[1][i], parts[2][i]
        known, row, found = state[i], total[i], half[i]
        # Two loops over a row that is still in the cache: in one there are more arrays than a
        # compiler is ready to tell apart, and it would not be vectorised.
        for j in range(row.shape[0]):
            row[j] = first * a[j] + second * b[j] + third * c[j]
        for j in range(row.shape[0]):
            t = tanh(gain * row[j])
            t = edge if t > edge else t
            t = -edge if t < -edge else t
            s = (known[j] - base) * unit
            square = s * s
            found[j] = scale * t * (one - square) / (one - square * t * t)


@compiled
def middle(state, total, half, form, out):  # type: ignore[no-untyped-def]
    """``½[σ(u + total) + σ(u − total)] = state − s·tanh(gain·total)·half``, s the state as tanh."""
    kind = state.dtype.type
    gain, base = kind(form[0]), kind(form[2])
    unit = kind(1) / kind(form[1])
    for i in range(state.shape[0]):
        known, moved, apart, found = state[i], total[i], half[i], out[i]
        for j in range(found.shape[0]):
            s = (known[j] - base) * unit
            found[j] = known[j] - s * tanh(gain * moved[j]) * apart[j]


@compiled
def most_lost(fine, moved, winners, size, stride, padding):  # type: ignore[no-untyped-def]
    """By how much a winner is below another pixel of its window at most, once ``moved`` is added
    to the map or taken from it; maps (batch, height, width, channels)."""
    height, width, channels = fine.shape[1:]
    batch, high, wide = winners.shape[:3]
    worst = fine.dtype.type(0)
    up, down = np.empty(channels, fine.dtype), np.empty(channels, fine.dtype)
    for b in range(batch):
        for p in range(high):
            for q in range(wide):
                for c in range(channels):
                    at = winners[b, p, q, c]
                    y, x = at // width, at % width
                    value, move = fine[b, y, x, c], moved[b, y, x, c]
                    up[c], down[c] = value + move, value - move
                top, left = p * stride[0] - padding[0], q * stride[1] - padding[1]
                for y in range(max(top, 0), min(top + size[0], height)):
                    for x in range(max(left, 0), min(left + size[1], width)):
                        values, moves = fine[b, y, x], moved[b, y, x]
                        for c in range(channels):
                            one = values[c] + moves[c] - up[c]
                            two = values[c] - moves[c] - down[c]
                            worst = one if one > worst else worst
                            worst = two if two > worst else worst
    return worst


@compiled
def residual(after, before, rounding, floor, slack, found):  # type: ignore[no-untyped-def]
    """``‖after − before‖ / max(slack·‖after‖, floor)``; False where squares leave their range."""
    fine = True
    for i in range(after.shape[0]):
        apart, square = squares(after[i], before[i])
        gap, size = math.sqrt(apart), math.sqrt(square)
        if not (1e-30 < square < 1e36 and apart < 1e36) and square + apart != 0.0:
            fine = False
        found[i] = 0.0 if gap <= rounding * size else gap / max(slack * size, floor)
        if square == 0.0:
            fine = False
    return fine


@compiled
def presence(after, floor, slack, found):  # type: ignore[no-untyped-def]
    """`residual` from nothing."""
    fine = True
    for i in range(after.shape[0]):
        square = squares(after[i], after[i])[1]
        size = math.sqrt(square)
        found[i] = 0.0 if square == 0.0 else size / max(slack * size, floor)
        fine &= 1e-30 < square < 1e36
    return fine


@compiled
def bend(states, totals, above, past, fed, found):  # type: ignore[no-untyped-def]
    """See `pass_steps.Steps.bend`; each of ``states``, ``totals`` and ``above`` is new, then old.
    The last of them mean nothing where nothing is ``fed`` from above."""
    for i in range(states[0].shape[0]):
        y, x, t, e = states[0][i], states[1][i], totals[0][i], totals[1][i]
        if fed:
            first, one, two, second, fall, across = fed_strains(
                y, x, t, e, above[0][i], above[1][i], past[i]
            )
        else:
            first, one, two, second = strains(y, x, t, e)
            fall, across = 0.0, 0.0
        found[0, i], found[1, i], found[2, i] = 2 * first, one + two, 2 * second
        found[3, i], found[4, i] = fall, across


@compiled
def factors(bent, tiny, parallel, furthest, one, other):  # type: ignore[no-untyped-def]
    """See `pass_steps.Steps.factors`."""
    for i in range(bent.shape[1]):
        one[i], other[i] = 1.0, 0.0
        first, mixed, second, fall, across = bent[:, i]
        if not (first > tiny and second > tiny):
            continue
        unit, beside = 1 / math.sqrt(first), 1 / math.sqrt(second)
        joint, fall, across = mixed * unit * beside, fall * unit, across * beside
        left = 1 - joint * joint
        if not left > parallel:
            continue
        along = (across - joint * fall) / left
        share, more = (fall - joint * along) * unit, along * beside
        if abs(share) < furthest[0] and abs(more) < furthest[1]:
            one[i], other[i] = 1 + share + more, -more


@compiled
def go_on(new, old, share, form, total, state):  # type: ignore[no-untyped-def]
    """``total = new + share·(new − old)``, with a share for each row, and ``σ(total)``."""
    kind = new.dtype.type
    gain, scale, base, offset = kind(form[0]), kind(form[1]), kind(form[2]), kind(form[3])
    for i in range(new.shape[0]):
        a, b, row, found, part = new[i], old[i], total[i], state[i], kind(share[i])
        for j in range(row.shape[0]):
            row[j] = a[j] + part * (a[j] - b[j])
        for j in range(row.shape[0]):
            found[j] = scale * tanh(gain * row[j] + offset) + base


@compiled
def mix(new, old, one, other, out):  # type: ignore[no-untyped-def]
    """``one·new + other·old``, with factors for each row."""
    for i in range(new.shape[0]):
        a, b, row = new[i], old[i], out[i]
        first, second = row.dtype.type(one[i]), row.dtype.type(other[i])
        for j in range(row.shape[0]):
            row[j] = first * a[j] + second * b[j]


@compiled
def overlap(a, b, c, d, found):  # type: ignore[no-untyped-def]
    """``⟨a − b, c − d⟩`` of each row."""
    for i in range(a.shape[0]):
        found[i] = overlapping(a[i], b[i], c[i], d[i])


@compiled
def exchange(blocks, out):  # type: ignore[no-untyped-def]
    """Blocks (n, a, b, numbers) to (n, b, a, numbers): a library that finds the order of four
    dimensions for itself takes three times as long."""
    many, high, wide, count = blocks.shape
    for i in range(many):
        for a in range(high):
            for b in range(wide):
                source, target = blocks[i, a, b], out[i, b, a]
                for k in range(count):
                    target[k] = source[k]
