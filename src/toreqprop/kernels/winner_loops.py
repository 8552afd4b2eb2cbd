"""What Numba compiles for a convolution below a max pooling whose winners are known.

Of every window one pixel counts: the way up of a move and the local gradient take a patch of the
lower map for each winner, a quarter of the whole convolution under windows of two by two. Maps are
(batch, height, width, channels), kernels (above, height, width, below), steps are one, windows do
not overlap. A patch is some rows of memory, read in vectors of `LANES` numbers: what they have too
many of is multiplied with zero, or not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from toreqprop.kernels.compiling import compiled, helper
from toreqprop.kernels.loops import _copy_all
from toreqprop.kernels.vectors import LANES, folded


class _Lanes:
    """Vectors of some numbers in flat arrays."""

    def __init__(self, context: Any, builder: Any, kind: Any, lanes: int) -> None:
        self.context, self.builder, self.lanes = context, builder, lanes
        self.kind, self.align = (
            ir.VectorType(context.get_data_type(kind), lanes),
            kind.bitwidth // 8,
        )

    def at(self, array: Any, place: Any) -> Any:
        kind, value = array
        data = self.context.make_array(kind)(self.context, self.builder, value).data
        return self.builder.bitcast(self.builder.gep(data, [place]), self.kind.as_pointer())

    def load(self, array: Any, place: Any) -> Any:
        loaded = self.builder.load(self.at(array, place))
        loaded.align = self.align
        return loaded

    def store(self, value: Any, array: Any, place: Any) -> None:
        self.builder.store(value, self.at(array, place)).align = self.align

    def spread(self, value: Any) -> Any:
        """One number in every lane."""
        nothing = ir.Constant(self.kind, ir.Undefined)
        first = self.builder.insert_element(nothing, value, ir.IntType(32)(0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(first, nothing, mask)

    def rows(self, form: Any, places: Any) -> Iterator[list[Any]]:
        """Loop over a patch, (rows, numbers in each): where the next vector is in each array, of
        which ``places`` are where the patch begins and how far its rows are apart."""
        builder = self.builder
        rows, width = (builder.extract_value(form, k) for k in (0, 1))
        zero, lanes = ir.Constant(rows.type, 0), ir.Constant(rows.type, self.lanes)
        with cgutils.for_range(builder, rows) as row:
            starts = [builder.add(at, builder.mul(row.index, apart)) for at, apart in places]
            with cgutils.for_range_slice(builder, zero, width, lanes) as (j, _):
                yield [builder.add(start, j) for start in starts]


def _adding(lanes: int) -> Any:
    """An intrinsic that adds patches in vectors of so many numbers."""

    @intrinsic
    def add(typing, out, start, form, maps, at, factors):  # type: ignore[no-untyped-def]
        """``out += Σ factor·map``, ``out`` in one piece, the patches of all maps at (place,
        apart)."""
        signature = types.void(out, start, form, maps, at, factors)

        def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
            vectors = _Lanes(context, builder, out.dtype, lanes)
            every = [
                ((kind, builder.extract_value(args[3], k)), builder.extract_value(args[5], k))
                for k, kind in enumerate(maps)
            ]
            terms = [(array, vectors.spread(factor)) for array, factor in every]
            place, apart = (builder.extract_value(args[4], k) for k in (0, 1))
            width = builder.extract_value(args[2], 1)
            for source, to in vectors.rows(args[2], [(place, apart), (args[1], width)]):
                total = vectors.load((out, args[0]), to)
                for array, times in terms:
                    more = builder.fmul(times, vectors.load(array, source))
                    total = builder.fadd(total, more)
                vectors.store(total, (out, args[0]), to)
            return context.get_dummy_value()

        return signature, codegen

    return add


FEW = 8
"""Numbers of a vector for patches of images, whose rows are short."""

_add_patches, _add_small_patches = _adding(LANES), _adding(FEW)


@intrinsic
def _patch_products(typing, low, places, form, row, start):  # type: ignore[no-untyped-def]
    """``⟨patch, row⟩`` of two patches of ``low``, at the first two of ``places``, rows as far apart
    as the third says, with ``row`` in one piece: two sums that need not wait for each other."""
    signature = types.UniTuple(low.dtype, 2)(low, places, form, row, start)

    def codegen(context, builder, sig, args):  # type: ignore[no-untyped-def]
        vectors = _Lanes(context, builder, low.dtype, LANES)
        nothing = ir.Constant(vectors.kind, None)
        totals = [cgutils.alloca_once_value(builder, nothing) for _ in range(2)]
        for total in totals:
            builder.store(nothing, total)
        *starts, apart = (builder.extract_value(args[1], k) for k in range(3))
        width = builder.extract_value(args[2], 1)
        walked = [*((place, apart) for place in starts), (args[4], width)]
        for *sources, other in vectors.rows(args[2], walked):
            b = vectors.load((row, args[3]), other)
            for total, source in zip(totals, sources, strict=True):
                more = builder.fmul(vectors.load((low, args[0]), source), b)
                builder.store(builder.fadd(builder.load(total), more), total)
        found = [folded(builder, builder.load(total)) for total in totals]
        return context.make_tuple(builder, signature.return_type, found)

    return signature, codegen


@helper
def _place(winner, p, size, width, framed):  # type: ignore[no-untyped-def]
    """Which pixel of a frame the patch of a winner begins at, in the p-th row of windows."""
    row, column = p * size, winner - p * size * width
    while column >= width:
        column -= width
        row += 1
    return row * framed + column


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
def _frame(maps, padding):  # type: ignore[no-untyped-def]
    """Zeros for one map with its frame, flat, and what a vector may read behind it."""
    rows, columns, channels = maps.shape[1:]
    inside = (rows + 2 * padding[0]) * (columns + 2 * padding[1]) * channels
    return np.zeros(inside + LANES, maps.dtype)


@compiled
def lift(move, winners, size, kernel, padding, out):  # type: ignore[no-untyped-def]
    """``K ⋆ move`` at the winners alone."""
    channels, high, wide, below = kernel.shape
    across = move.shape[2] + 2 * padding[1]
    fine, width = across - wide + 1, wide * below
    room = (width + LANES - 1) // LANES * LANES
    rows = np.zeros((channels * high, room), kernel.dtype)
    _copy_all(kernel.reshape(channels * high, width), rows[:, :width])
    flat, form, low = rows.reshape(-1), (high, room), _frame(move, padding)
    for b in range(out.shape[0]):
        _framed(move[b], padding[0], padding[1], low)
        for c in range(channels):
            for p in range(out.shape[1]):
                for q in range(0, out.shape[2], 2):
                    beside = min(q + 1, out.shape[2] - 1)
                    one = _place(winners[b, p, q, c], p, size, fine, across)
                    two = _place(winners[b, p, beside, c], p, size, fine, across)
                    places = one * below, two * below, across * below
                    found = _patch_products(low, places, form, flat, c * high * room)
                    out[b, p, q, c], out[b, p, beside, c] = found


@compiled
def correlate(post, pre, winners, size, padding, out):  # type: ignore[no-untyped-def]
    """``Σ post_0 ⊗ pre_0 + post_1 ⊗ pre_1`` over samples and winners, in the shape of a kernel."""
    channels, high, wide, below = out.shape
    across = pre[0].shape[2] + 2 * padding[1]
    fine, width = across - wide + 1, wide * below
    room = (width + LANES - 1) // LANES * LANES
    sums = np.zeros((channels * high, room), out.dtype)
    flat, form = sums.reshape(-1), (high, room)
    frames = _frame(pre[0], padding), _frame(pre[1], padding)
    for b in range(winners.shape[0]):
        _framed(pre[0][b], padding[0], padding[1], frames[0])
        _framed(pre[1][b], padding[0], padding[1], frames[1])
        for c in range(channels):
            for p in range(winners.shape[1]):
                for q in range(winners.shape[2]):
                    at = _place(winners[b, p, q, c], p, size, fine, across) * below
                    place, factors = (
                        (at, across * below),
                        (post[0][b, p, q, c], post[1][b, p, q, c]),
                    )
                    _add_patches(flat, c * high * room, form, frames, place, factors)
    _copy_all(sums[:, :width], out.reshape(channels * high, width))


@compiled
def correlate_image(post, image, winners, size, padding, out):  # type: ignore[no-untyped-def]
    """``Σ post ⊗ image``, the same for one pair of maps, in shorter vectors."""
    channels, high, wide, below = out.shape
    across = image.shape[2] + 2 * padding[1]
    fine, width = across - wide + 1, wide * below
    room = (width + FEW - 1) // FEW * FEW
    sums = np.zeros((channels * high, room), out.dtype)
    flat, form, frame = sums.reshape(-1), (high, room), _frame(image, padding)
    for b in range(winners.shape[0]):
        _framed(image[b], padding[0], padding[1], frame)
        for c in range(channels):
            for p in range(winners.shape[1]):
                for q in range(winners.shape[2]):
                    at = _place(winners[b, p, q, c], p, size, fine, across) * below
                    factors = (post[b, p, q, c],)
                    place = (at, across * below)
                    _add_small_patches(flat, c * high * room, form, (frame,), place, factors)
    _copy_all(sums[:, :width], out.reshape(channels * high, width))
