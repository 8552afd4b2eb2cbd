"""What Numba compiles for a convolution below a max pooling whose winners are known.

Of every window one pixel counts: the way up of a move and the local gradient take a patch of the
lower map for each winner, a quarter of the whole convolution under windows of two by two. Maps are
(batch, height, width, channels), kernels (above, height, width, below), steps are one, windows do
not overlap. A patch is some rows of memory, read in vectors of `LANES` numbers: what they have too
many of is multiplied with zero, or not looked at. Sums stay in registers while all windows pass.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from toreqprop.kernels.compiling import compiled, helper
from toreqprop.kernels.loops import _copy_all
from toreqprop.kernels.vectors import LANES, folded

SUMS = 8
"""Vectors of a gradient that are summed at once."""

AT_ONCE = 4
"""Patches that are multiplied with the same row of a kernel at once."""


class _Lanes:
    """Vectors in flat arrays."""

    def __init__(self, context: Any, builder: Any, kind: Any) -> None:
        self.context, self.builder = context, builder
        self.kind = ir.VectorType(context.get_data_type(kind), LANES)
        self.align = kind.bitwidth // 8

    def at(self, array: Any, place: Any) -> Any:
        """Where one number is; ``array`` is its type and value."""
        kind, value = array
        data = self.context.make_array(kind)(self.context, self.builder, value).data
        return self.builder.gep(data, [place])

    def load(self, array: Any, place: Any) -> Any:
        at = self.builder.bitcast(self.at(array, place), self.kind.as_pointer())
        loaded = self.builder.load(at)
        loaded.align = self.align
        return loaded

    def store(self, value: Any, array: Any, place: Any) -> None:
        at = self.builder.bitcast(self.at(array, place), self.kind.as_pointer())
        self.builder.store(value, at).align = self.align

    def spread(self, value: Any) -> Any:
        """One number in every lane."""
        nothing = ir.Constant(self.kind, ir.Undefined)
        first = self.builder.insert_element(nothing, value, ir.IntType(32)(0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return self.builder.shuffle_vector(first, nothing, mask)


@intrinsic
def _add_patches(typing, out, form, low, places, factors):  # type: ignore[no-untyped-def]
    """``out += Σ_k factor_k·patch_k``, in `SUMS` vectors at most.

    ``form``: how many vectors, where the first is in ``out`` and how far they are apart there, then
    the same in a patch. ``places`` are where patches of ``low`` begin.
    """
    signature = types.void(out, form, low, places, factors)

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        vectors = _Lanes(context, builder, out.dtype)
        count, first, apart, begin, step = (builder.extract_value(args[1], k) for k in range(5))
        target, source = (out, args[0]), (low, args[2])
        every = context.make_array(places)(context, builder, args[3])
        patches = builder.extract_value(every.shape, 0)

        def write(height):  # type: ignore[no-untyped-def]
            ends, offsets = [first], [begin]
            for _ in range(1, height):
                ends.append(builder.add(ends[-1], apart))
                offsets.append(builder.add(offsets[-1], step))
            sums = [cgutils.alloca_once(builder, vectors.kind) for _ in ends]
            for total, end in zip(sums, ends, strict=True):
                builder.store(vectors.load(target, end), total)
            with cgutils.for_range(builder, patches) as patch:
                at = builder.load(vectors.at((places, args[3]), patch.index))
                factor = builder.load(vectors.at((factors, args[4]), patch.index))
                times = vectors.spread(factor)
                for total, offset in zip(sums, offsets, strict=True):
                    more = builder.fmul(times, vectors.load(source, builder.add(at, offset)))
                    builder.store(builder.fadd(builder.load(total), more), total)
            for total, end in zip(sums, ends, strict=True):
                vectors.store(builder.load(total), target, end)

        done = builder.append_basic_block("done")
        chosen = builder.switch(count, done)
        for height in range(1, SUMS + 1):
            block = builder.append_basic_block(f"vectors{height}")
            chosen.add_case(ir.Constant(count.type, height), block)
            builder.position_at_end(block)
            write(height)
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def _patch_products(typing, low, places, form, row, start):  # type: ignore[no-untyped-def]
    """``⟨patch, row⟩`` of `AT_ONCE` patches of ``low`` that begin at ``places``, with ``row`` in
    one piece from ``start`` on: sums that need not wait for each other. ``form``: rows of a patch,
    how many numbers each has, and how far they are apart."""
    signature = types.UniTuple(low.dtype, AT_ONCE)(low, places, form, row, start)

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        vectors = _Lanes(context, builder, low.dtype)
        nothing = ir.Constant(vectors.kind, None)
        totals = [cgutils.alloca_once_value(builder, nothing) for _ in range(AT_ONCE)]
        for total in totals:
            builder.store(nothing, total)
        starts = [builder.extract_value(args[1], k) for k in range(AT_ONCE)]
        rows, width, apart = (builder.extract_value(args[2], k) for k in range(3))
        zero, lanes = ir.Constant(rows.type, 0), ir.Constant(rows.type, LANES)
        with cgutils.for_range(builder, rows) as line:
            down = builder.mul(line.index, apart)
            other = builder.add(args[4], builder.mul(line.index, width))
            with cgutils.for_range_slice(builder, zero, width, lanes) as (j, _):
                b, along = vectors.load((row, args[3]), builder.add(other, j)), builder.add(down, j)
                for total, place in zip(totals, starts, strict=True):
                    patch = vectors.load((low, args[0]), builder.add(place, along))
                    more = builder.fmul(patch, b)
                    builder.store(builder.fadd(builder.load(total), more), total)
        found = [folded(builder, builder.load(total)) for total in totals]
        return context.make_tuple(builder, signature.return_type, found)

    return signature, codegen


@helper
def _places(winners, c, size, width, across, below, out):  # type: ignore[no-untyped-def]
    """Where in a frame the patches of one channel's winners begin; after the last the same again.

    No branch depends on who won: it could not be foreseen.
    """
    high, wide = winners.shape[:2]
    for p in range(high):
        for q in range(wide):
            row, column = p * size, winners[p, q, c] - p * size * width
            for _ in range(size - 1):
                over = np.int64(column >= width)
                row += over
                column -= width * over
            out[p * wide + q] = (row * across + column) * below
    for k in range(high * wide, out.shape[0]):
        out[k] = out[high * wide - 1]


@helper
def _framed(low, high, wide, out):  # type: ignore[no-untyped-def]
    """One map with a frame of zeros that is there already, flat."""
    rows, columns, channels = low.shape
    across = columns + 2 * wide
    for y in range(rows):
        start = ((y + high) * across + wide) * channels
        for x in range(columns):
            for c in range(channels):
                out[start + x * channels + c] = low[y, x, c]


@helper
def _frames(maps, padding):  # type: ignore[no-untyped-def]
    """Zeros for every map with its frame, flat, and what a vector may read behind it."""
    rows, columns, channels = maps[0].shape[1:]
    inside = (rows + 2 * padding[0]) * (columns + 2 * padding[1]) * channels
    return np.zeros((len(maps), inside + LANES), maps[0].dtype)


@compiled
def lift(move, winners, size, kernel, padding, out):  # type: ignore[no-untyped-def]
    """``K ⋆ move`` at the winners alone."""
    channels, high, wide, below = kernel.shape
    across = move.shape[2] + 2 * padding[1]
    fine, width = across - wide + 1, wide * below
    room = (width + LANES - 1) // LANES * LANES
    rows = np.zeros((channels * high, room), kernel.dtype)
    _copy_all(kernel.reshape(channels * high, width), rows[:, :width])
    flat, form = rows.reshape(-1), (high, room, across * below)
    low = _frames((move,), padding)[0]
    columns = out.shape[2]
    windows = out.shape[1] * columns
    places = np.empty((windows + AT_ONCE - 1) // AT_ONCE * AT_ONCE, np.int64)
    sums = np.empty(places.shape[0], kernel.dtype)
    for b in range(out.shape[0]):
        _framed(move[b], padding[0], padding[1], low)
        for c in range(channels):
            _places(winners[b], c, size, fine, across, below, places)
            for k in range(0, windows, AT_ONCE):
                four = places[k], places[k + 1], places[k + 2], places[k + 3]
                sums[k], sums[k + 1], sums[k + 2], sums[k + 3] = _patch_products(
                    low, four, form, flat, c * high * room
                )
            for p in range(out.shape[1]):
                for q in range(columns):
                    out[b, p, q, c] = sums[p * columns + q]


@compiled
def correlate(post, pre, winners, size, padding, out):  # type: ignore[no-untyped-def]
    """``Σ_m post_m ⊗ pre_m`` over samples and winners, in the shape of a kernel, of one pair of
    maps or more."""
    channels, high, wide, below = out.shape
    across = pre[0].shape[2] + 2 * padding[1]
    fine, width = across - wide + 1, wide * below
    room = (width + LANES - 1) // LANES * LANES
    sums = np.zeros((channels * high, room), out.dtype)
    flat, frames = sums.reshape(-1), _frames(pre, padding)
    windows = winners.shape[1] * winners.shape[2]
    places, factors = (
        np.empty(len(pre) * windows, np.int64),
        np.empty(len(pre) * windows, out.dtype),
    )
    for b in range(winners.shape[0]):
        for m in range(len(pre)):
            _framed(pre[m][b], padding[0], padding[1], frames[m])
        for c in range(channels):
            _places(winners[b], c, size, fine, across, below, places[:windows])
            for m in range(len(pre)):
                own = post[m][b]
                for p in range(own.shape[0]):
                    for q in range(own.shape[1]):
                        k = m * windows + p * own.shape[1] + q
                        factors[k] = own[p, q, c]
                        places[k] = places[k - m * windows] + m * frames.shape[1]
            start, line = c * high * room, across * below
            if room == LANES:  # a row is one vector
                for r in range(0, high, SUMS):
                    form = min(SUMS, high - r), start + r * room, room, r * line, line
                    _add_patches(flat, form, frames.reshape(-1), places, factors)
                continue
            for r in range(high):
                for j in range(0, room, SUMS * LANES):
                    count = min(SUMS, (room - j) // LANES)
                    form = count, start + r * room + j, LANES, r * line + j, LANES
                    _add_patches(flat, form, frames.reshape(-1), places, factors)
    _copy_all(sums[:, :width], out.reshape(channels * high, width))
