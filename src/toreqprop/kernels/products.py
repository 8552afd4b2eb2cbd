"""Matrix products inside of compiled loops, by the library that PyTorch multiplies with.

Between two products of a small network Python takes longer than the product. Compiled code that
multiplies on its own needs none; and with PyTorch's own routine it rounds as PyTorch does, and uses
as many threads as PyTorch was told to. Where PyTorch does not show its routine, SciPy's is taken.
"""

from __future__ import annotations

import ctypes
import threading
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic

from toreqprop.kernels.compiling import helper

_NAMES = {torch.float32: "sgemm", torch.float64: "dgemm"}
_ARGUMENTS = 13


class Routine(NamedTuple):
    """``gemm`` of one dtype: its address, and memory for the arguments it takes by reference:
    sizes, the factors of the product and of what was there before, and letters."""

    address: int
    sizes: np.ndarray
    factors: np.ndarray
    letters: np.ndarray


@cache
def _address(dtype: torch.dtype) -> int:
    name = _NAMES[dtype]
    for path in sorted((Path(torch.__file__).parent / "lib").glob("*torch_cpu*")):
        try:
            library = ctypes.CDLL(str(path))
            return ctypes.cast(getattr(library, name + "_"), ctypes.c_void_p).value or 0
        except (OSError, AttributeError):
            continue
    return int(get_cython_function_address("scipy.linalg.cython_blas", name))


def routine(dtype: torch.dtype) -> Routine:
    """The routine for one thread: memory that is written to is not shared."""
    kept = _own.routines
    if dtype not in kept:
        factors = np.array([1.0, 0.0], np.float32 if dtype == torch.float32 else np.float64)
        letters = np.frombuffer(b"NT", np.uint8).copy()  # as it is, and transposed
        kept[dtype] = Routine(_address(dtype), np.zeros(6, np.int32), factors, letters)
    return kept[dtype]


class _Own(threading.local):
    """What every thread has for itself."""

    def __init__(self) -> None:
        self.routines: dict[torch.dtype, Routine] = {}


_own = _Own()


@intrinsic
def _call(typing, address, arguments):  # type: ignore[no-untyped-def]
    """Call what is at ``address`` with a tuple of addresses."""
    signature = types.void(types.int64, types.UniTuple(types.int64, _ARGUMENTS))

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place, given = args
        word = ir.IntType(64)
        kind = ir.FunctionType(ir.VoidType(), [word] * _ARGUMENTS)
        function = builder.inttoptr(place, kind.as_pointer())
        builder.call(function, [builder.extract_value(given, k) for k in range(_ARGUMENTS)])
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def _pointer(typing, address):  # type: ignore[no-untyped-def]
    """A number as a pointer."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), codegen


@helper
def numbers_at(address, count, like):  # type: ignore[no-untyped-def]
    """``count`` numbers at an address, of the type that those in the array ``like`` have."""
    return numba.carray(_pointer(address), (count,), like.dtype)


@helper
def matrix_at(address, rows, columns, like):  # type: ignore[no-untyped-def]
    """A matrix in rows at an address, of the type that those in the array ``like`` have."""
    return numba.carray(_pointer(address), (rows, columns), like.dtype)


@helper
def multiply(gemm, places, sizes, strides, turned, scale=1.0):  # type: ignore[no-untyped-def]
    """``C ← scale·A·B`` of matrices in rows, at the three addresses ``places``.

    ``sizes`` are the rows of C, the length of its sums and its columns; ``strides`` from one row to
    the next of A, B and C as they lie in memory; ``turned`` says of A and B whether what lies there
    is their transpose.
    """
    address, numbers, factors, letters = gemm
    left, right, out = places
    rows, inner, columns = sizes
    numbers[0], numbers[1], numbers[2] = columns, rows, inner
    numbers[3], numbers[4], numbers[5] = strides[1], strides[0], strides[2]
    factors[0] = scale
    first, one, letter = numbers.ctypes.data, factors.ctypes.data, letters.ctypes.data
    # In columns, as the routine counts, it is Cᵀ = Bᵀ·Aᵀ.
    _call(
        address,
        (
            letter + (1 if turned[1] else 0), letter + (1 if turned[0] else 0),
            first, first + 4, first + 8, one, right, first + 12, left, first + 16,
            one + factors.itemsize, out, first + 20,
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
