"""Matrix products inside of compiled loops, by the library that PyTorch multiplies with.

Between two products of a small network Python takes longer than the product. Compiled code that
multiplies on its own needs none; and with PyTorch's own routine it rounds as PyTorch does, and uses
as many threads as PyTorch was told to. Where PyTorch does not show its routine, SciPy's is taken;
where that leaves half of the processor's registers empty, `wide_products`.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numba.extending import get_cython_function_address

from toreqprop.kernels.addresses import call
from toreqprop.kernels.compiling import compiled, helper

_NAMES = {torch.float32: "sgemm", torch.float64: "dgemm"}


class Routine(NamedTuple):
    """``gemm`` of one dtype: its address, and memory for the arguments it takes by reference:
    sizes, the factors of the product and of what was there before, and letters; and the address of
    `wide_products.gemm`, zero where it is not to be used, with what that takes of threads."""

    address: int
    sizes: np.ndarray
    factors: np.ndarray
    letters: np.ndarray
    wide: int
    team: np.ndarray


@cache
def _address(dtype: torch.dtype) -> int:
    name = _NAMES[dtype]
    found = of_pytorch(name + "_")
    return found or int(get_cython_function_address("scipy.linalg.cython_blas", name))


def of_pytorch(name: str) -> int:
    """The address of a function in PyTorch's library, or in one that it uses; zero where it does
    not show it."""
    for path in sorted((Path(torch.__file__).parent / "lib").glob("*torch_cpu*")):
        try:
            library = ctypes.CDLL(str(path))
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        except (OSError, AttributeError):
            continue
    return 0


def routine(dtype: torch.dtype) -> Routine:
    """The routine for one thread: memory that is written to is not shared."""
    wanted = dtype, _own.wide, torch.get_num_threads() == 1
    kept = _own.routines.get(wanted)
    if kept is None:
        kept = _own.routines[wanted] = _routine(*wanted)
    return kept


def _routine(dtype: torch.dtype, wide: bool, alone: bool) -> Routine:
    factors = np.array([1.0, 0.0], np.float32 if dtype == torch.float32 else np.float64)
    letters = np.frombuffer(b"NT", np.uint8).copy()  # as it is, and transposed
    place, team = _wide(dtype, alone) if wide else (0, np.zeros(4, np.int64))
    return Routine(_address(dtype), np.zeros(6, np.int32), factors, letters, place, team)


def _wide(dtype: torch.dtype, alone: bool) -> tuple[int, np.ndarray]:
    # It is made of what is above it here.
    from toreqprop.kernels import wide_products

    team = wide_products.team(dtype, alone) if wide_products.available() else None
    if team is None:
        return 0, np.zeros(4, np.int64)
    return wide_products.address(dtype), team


class _Own(threading.local):
    """What every thread has for itself."""

    def __init__(self) -> None:
        self.routines: dict[tuple[torch.dtype, bool, bool], Routine] = {}
        self.wide = True


_own = _Own()


@contextmanager
def pytorch_products() -> Iterator[None]:
    """Within it this thread's products are PyTorch's."""
    before, _own.wide = _own.wide, False
    try:
        yield
    finally:
        _own.wide = before


@helper
def multiply(gemm, places, sizes, strides, turned, scale=1.0):  # type: ignore[no-untyped-def]
    """``C ← scale·A·B`` of matrices in rows, at the three addresses ``places``.

    ``sizes`` are the rows of C, the length of its sums and its columns; ``strides`` from one row to
    the next of A, B and C as they lie in memory; ``turned`` says of A and B whether what lies there
    is their transpose.
    """
    address, numbers, factors, letters, wide, team = gemm
    left, right, out = places
    rows, inner, columns = sizes
    numbers[0], numbers[1], numbers[2] = columns, rows, inner
    numbers[3], numbers[4], numbers[5] = strides[1], strides[0], strides[2]
    factors[0] = scale
    first, one, letter = numbers.ctypes.data, factors.ctypes.data, letters.ctypes.data
    before = np.int64(team.ctypes.data) if wide else np.int64(one + factors.itemsize)
    # In columns, as the routine counts, it is Cᵀ = Bᵀ·Aᵀ.
    call(
        wide if wide else address,
        (
            letter + (1 if turned[1] else 0), letter + (1 if turned[0] else 0),
            first, first + 4, first + 8, one, right, first + 12, left, first + 16,
            before, out, first + 20,
        ),
    )  # fmt: skip


@helper
def product(gemm, left, weight, out, rows, places, scale=1.0):  # type: ignore[no-untyped-def]
    """``out ← scale·left·W`` or ``scale·left·Wᵀ`` of the first ``rows``, W (out, in) in rows at the
    address ``weight``.

    ``places`` are the first columns of ``left`` and ``out``, the numbers of rows and columns of W,
    and whether W is transposed, which goes up.
    """
    source, target, height, width, rising = places
    inner, outer = (width, height) if rising else (height, width)
    start = (
        left.ctypes.data + source * left.itemsize,
        weight,
        out.ctypes.data + target * out.itemsize,
    )
    strides = left.shape[1], width, out.shape[1]
    multiply(gemm, start, (rows, inner, outer), strides, (False, rising), scale)


@helper
def outer_product(gemm, left, right, out):  # type: ignore[no-untyped-def]
    """``out ← leftᵀ·right``; rows are samples."""
    (rows, height), width = left.shape, right.shape[1]
    places = left.ctypes.data, right.ctypes.data, out.ctypes.data
    multiply(gemm, places, (height, rows, width), (height, width, width), (True, False))


@compiled
def matrix_product(gemm, places, sizes, strides, turned, scale):  # type: ignore[no-untyped-def]
    """`multiply`, as Python calls it."""
    multiply(gemm, places, sizes, strides, turned, scale)
