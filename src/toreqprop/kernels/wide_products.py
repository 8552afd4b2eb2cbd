"""Matrix products with registers of 512 bits, where a library leaves half of them empty.

On processors of AMD, MKL multiplies with registers of 256 bits, also where there are wider ones
that compute twice as much at a time. `gemm` takes what a library's routine takes, and `products`
gives it where that is so.

Tiles of six rows and four registers of columns stay in registers while the sums run; a strip of
columns stays near while all rows pass. A matrix that lies transposed is turned strip by strip.
Large products share their columns among PyTorch's threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding
import numba
import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from toreqprop.kernels.addresses import call, matrix_at, numbers_at
from toreqprop.kernels.compiling import address_of, compiled, helper
from toreqprop.kernels.products import of_pytorch
from toreqprop.kernels.vectors import TILE, transpose_tile

WIDTH = 64
"""Bytes of a register."""

ROWS = 6
"""Rows of a tile: its sums, four registers of columns and one more are 29 of the 32 there are."""

REGISTERS = 4
"""Of the columns of a strip."""

ALONE = 1 << 21
"""Factors that are multiplied with each other: up to there a second thread takes longer to begin
than it helps."""

_LOW = 0xFFFFFFFF

DEPTH = 256
"""Terms of the sums that are added up before the next strip is fetched: 64 kB of float32."""


@cache
def available() -> bool:
    """Whether products of PyTorch leave half of this processor's registers empty."""
    asked = numba.config
    if asked.CPU_NAME or asked.CPU_FEATURES or not asked.ENABLE_AVX:
        return False  # what is compiled is for another processor than this one
    name = llvmlite.binding.get_host_cpu_name()
    wide = llvmlite.binding.get_host_cpu_features().get("avx512f", False)
    return bool(wide) and name.startswith("znver") and torch.backends.mkl.is_available()


@cache
def address(dtype: torch.dtype) -> int:
    """Where the compiled `gemm` of that dtype is."""
    word = types.int64
    return address_of(gemm, (*[word] * 5, _pointer(dtype), *[word] * 7))


@cache
def team(dtype: torch.dtype, alone: bool) -> np.ndarray | None:
    """What `gemm` takes of threads: where to begin them, to ask for their number and how many there
    are, and what each does; zeros for one that is alone, None where PyTorch does not show it."""
    if alone:
        return np.zeros(4, np.int64)
    places = [of_pytorch(name) for name in _THREADS]
    return np.array([*places, address_of(_share, (_pointer(dtype),))]) if all(places) else None


def _pointer(dtype: torch.dtype) -> Any:
    return types.CPointer(types.float32 if dtype == torch.float32 else types.float64)


_THREADS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")


def _tiles(registers: int) -> Callable[..., Any]:
    """An intrinsic: ``out ← scale·L·R``, or added to what is there, of one tile.

    L has ``rows`` rows, `ROWS` at most, and ``count`` columns; R so many ``registers`` of columns.
    All are given by addresses; ``steps`` are bytes from row to row and from column to column of L,
    and from row to row of R and of the tile.
    """

    def typed(typing, like, rows, places, steps, count, add, scale):  # type: ignore[no-untyped-def]
        kind = like.dtype
        signature = types.void(like, rows, places, steps, count, add, kind)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            _, rows, places, steps, count, add, scale = args
            number = context.get_data_type(kind)
            tile = _Tile(
                builder, number, kind.bitwidth // 8, registers,
                [builder.extract_value(places, k) for k in range(3)],
                [builder.extract_value(steps, k) for k in range(4)],
            )  # fmt: skip
            done = builder.append_basic_block("done")
            chosen = builder.switch(rows, done)
            for height in range(1, ROWS + 1):
                block = builder.append_basic_block(f"rows{height}")
                chosen.add_case(ir.Constant(rows.type, height), block)
                builder.position_at_end(block)
                tile.write(height, count, add, scale)
                builder.branch(done)
            builder.position_at_end(done)
            return context.get_dummy_value()

        return signature, codegen

    return intrinsic(typed)


class _Tile:
    """Writes the code of one tile, of any number of rows."""

    def __init__(
        self, builder: Any, number: Any, size: int, registers: int, places: list[Any],
        steps: list[Any],
    ) -> None:  # fmt: skip
        self.builder, self.number, self.size, self.registers = builder, number, size, registers
        self.left, self.right, self.out = places
        self.down, self.along, self.next_row, self.out_row = steps
        self.lanes = WIDTH // size
        self.vector = ir.VectorType(number, self.lanes)

    def write(self, height: int, count: Any, add: Any, scale: Any) -> None:
        """The sums of all, in registers, and then their end."""
        builder, word = self.builder, self.left.type
        zero = ir.Constant(self.vector, None)
        sums = [
            [cgutils.alloca_once_value(builder, zero) for _ in range(self.registers)]
            for _ in range(height)
        ]
        left = cgutils.alloca_once_value(builder, self.left)
        right = cgutils.alloca_once_value(builder, self.right)
        below = [ir.Constant(word, 0)]
        for _ in range(1, height):
            below.append(builder.add(below[-1], self.down))
        with cgutils.for_range(builder, count):
            at, beside = builder.load(left), builder.load(right)
            factors = [self._load(beside, k) for k in range(self.registers)]
            for row, offset in zip(sums, below, strict=True):
                place = builder.inttoptr(builder.add(at, offset), self.number.as_pointer())
                one = self._everywhere(builder.load(place))
                for total, factor in zip(row, factors, strict=True):
                    builder.store(self._fused(one, factor, builder.load(total)), total)
            builder.store(builder.add(at, self.along), left)
            builder.store(builder.add(beside, self.next_row), right)
        times, place = self._everywhere(scale), self.out
        for row in sums:
            for total in row:
                builder.store(builder.fmul(builder.load(total), times), total)
            with builder.if_then(add):
                for k, total in enumerate(row):
                    builder.store(builder.fadd(builder.load(total), self._load(place, k)), total)
            for k, total in enumerate(row):
                stored = builder.store(builder.load(total), self._at(place, k))
                stored.align = self.size
            place = builder.add(place, self.out_row)

    def _at(self, place: Any, register: int) -> Any:
        offset = ir.Constant(place.type, register * WIDTH)
        return self.builder.inttoptr(self.builder.add(place, offset), self.vector.as_pointer())

    def _load(self, place: Any, register: int) -> Any:
        loaded = self.builder.load(self._at(place, register))
        loaded.align = self.size
        return loaded

    def _everywhere(self, value: Any) -> Any:
        """A register that holds the number in all places."""
        nothing, lane = ir.Constant(self.vector, ir.Undefined), ir.IntType(32)
        first = self.builder.insert_element(nothing, value, ir.Constant(lane, 0))
        places = ir.Constant(ir.VectorType(lane, self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(first, nothing, places)

    def _fused(self, a: Any, b: Any, c: Any) -> Any:
        """``a·b + c``, rounded once."""
        name = f"llvm.fma.v{self.lanes}f{8 * self.size}"
        kind = ir.FunctionType(self.vector, [self.vector] * 3)
        known = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(known, [a, b, c])


_four, _two, _one = _tiles(REGISTERS), _tiles(2), _tiles(1)


@helper
def _strip(  # type: ignore[no-untyped-def]
    like, registers, rows, places, steps, count, add, scale, kept
):
    """All rows of a strip of columns, tile by tile. What is ``kept`` has its address among the
    ``places``: an array ends with the last that is done to it, and this is it."""
    left, right, out = places
    for top in range(0, rows, ROWS):
        height = min(ROWS, rows - top)
        given = left + top * steps[0], right, out + top * steps[3]
        if registers == 4:
            _four(like, height, given, steps, count, add, scale)
        elif registers == 2:
            _two(like, height, given, steps, count, add, scale)
        else:
            _one(like, height, given, steps, count, add, scale)


@helper
def _turned(matrix, first, count, out):  # type: ignore[no-untyped-def]
    """Columns ``first`` to ``first + count`` of a matrix as rows; zero behind its last row."""
    rows, width = matrix.shape[0], out.shape[1]
    whole, deep = rows - rows % TILE, count - count % TILE
    for q in range(0, whole, TILE):
        for p in range(0, deep, TILE):
            transpose_tile(matrix, (q, first + p), out, (p, q))
        for p in range(deep, count):
            for r in range(q, q + TILE):
                out[p, r] = matrix[r, first + p]
    for p in range(count):
        for q in range(whole, rows):
            out[p, q] = matrix[q, first + p]
        for q in range(rows, width):
            out[p, q] = 0


@helper
def _widened(matrix, columns, out):  # type: ignore[no-untyped-def]
    """The first columns of a matrix, and zero behind them."""
    for p in range(out.shape[0]):
        for q in range(columns):
            out[p, q] = matrix[p, q]
        for q in range(columns, out.shape[1]):
            out[p, q] = 0


_SIZES, _LETTERS, _TURNED = np.empty(0, np.int32), np.empty(0, np.uint8), ord("T")
_WORDS, _SHARED = np.empty(0, np.int64), 14


@helper
def _size(address):  # type: ignore[no-untyped-def]
    return int(numbers_at(address, 1, _SIZES)[0])


@compiled
def gemm(  # type: ignore[no-untyped-def]
    right_turned, left_turned, columns, rows, inner, scale, right, right_stride, left, left_stride,
    team, out, out_stride,
):  # fmt: skip
    """What ``sgemm`` and ``dgemm`` of a library take, all by address, as `products.multiply` calls
    them: matrices in rows. In place of the factor of what was there before, which is zero, `team`.
    """
    like = numba.carray(scale, (1,))
    wide, threads = _size(columns), numbers_at(team, 4, _WORDS)
    words = np.empty(_SHARED, np.int64)
    numbers_at(np.int64(words.ctypes.data), 1, like)[0] = like[0]
    words[1], words[2], words[3], words[4] = right, _size(right_stride), left, _size(left_stride)
    words[5], words[6], words[7], words[8] = out, _size(out_stride), _size(rows), _size(inner)
    words[9], words[10] = wide, numbers_at(right_turned, 1, _LETTERS)[0] == _TURNED
    words[11] = numbers_at(left_turned, 1, _LETTERS)[0] == _TURNED
    words[12], words[13] = threads[1], threads[2]
    if threads[0] and words[7] * words[8] * wide > ALONE:
        call(threads[0], (threads[3], np.int64(words.ctypes.data), np.int64(0), np.int64(0)))
    else:
        _columns(words, like, 0, wide)
    words[0] = 0  # an array ends with the last that is done to it


@compiled
def _share(place):  # type: ignore[no-untyped-def]
    """One thread's strips."""
    like = numba.carray(place, (1,))
    words = numbers_at(np.int64(like.ctypes.data), _SHARED, _WORDS)
    strip = REGISTERS * WIDTH // like.itemsize
    strips = -(-words[9] // strip)
    number, count = call(words[12], ()) & _LOW, call(words[13], ()) & _LOW
    begin, end = strips * number // count, strips * (number + 1) // count
    _columns(words, like, begin * strip, min(end * strip, words[9]))


@helper
def _columns(words, like, begun, end):  # type: ignore[no-untyped-def]
    """So many columns of the product that ``words`` of `gemm` say."""
    right, right_row, left, left_row = words[1], words[2], words[3], words[4]
    out, out_row, high, deep = words[5], words[6], words[7], words[8]
    size = like.itemsize
    lanes, turned = WIDTH // size, words[10]
    down, along = (size, left_row * size) if words[11] else (left_row * size, size)
    while begun < end:
        left_over = end - begun
        registers = 4 if left_over >= 4 * lanes else 2 if left_over >= 2 * lanes else 1
        width = registers * lanes
        narrow = left_over < width
        target, target_row = out + begun * size, out_row * size
        if narrow:
            spare = np.empty((high, width), like.dtype)
            target, target_row = np.int64(spare.ctypes.data), width * size
        copied = turned or narrow
        kept = np.empty((min(DEPTH, deep) if copied else 0, width), like.dtype)
        for first in range(0, max(deep, 1), DEPTH):  # a sum of nothing is zero
            count = min(DEPTH, deep - first)
            beside, next_row = right + (first * right_row + begun) * size, right_row * size
            if copied:
                if turned:
                    lines = min(width, left_over)
                    place = right + begun * right_row * size
                    _turned(matrix_at(place, lines, right_row, like), first, count, kept[:count])
                else:
                    _widened(matrix_at(beside, count, right_row, like), left_over, kept[:count])
                beside, next_row = np.int64(kept.ctypes.data), width * size
            _strip(
                like, registers, high, (left + first * along, beside, target),
                (down, along, next_row, target_row), count, first > 0, like[0], kept,
            )  # fmt: skip
        if narrow:
            whole = matrix_at(out, high, out_row, like)
            for r in range(high):
                for q in range(left_over):
                    whole[r, begun + q] = spare[r, q]
        begun += width
