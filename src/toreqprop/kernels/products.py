"""Matrix products inside of compiled loops, by the library that PyTorch multiplies with.

Between two products of a small network Python takes longer than the product. Compiled code that
multiplies on its own needs none; and with PyTorch's own routine it rounds as PyTorch does, and uses
as many threads as PyTorch was told to. Where PyTorch does not show its routine, SciPy's is taken.
"""

from __future__ import annotations

import ctypes
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

from toreqprop.kernels.compiling import compiled

_NAMES = {torch.float32: "sgemm", torch.float64: "dgemm"}
_ARGUMENTS = 13


class Routine(NamedTuple):
    """``gemm`` of one dtype: its address, and memory for the arguments it takes by reference."""

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


@cache
def _constants(dtype: torch.dtype) -> tuple[np.ndarray, np.ndarray]:
    """One and zero; the letters of what is as it is, and of what is transposed."""
    factors = np.array([1.0, 0.0], np.float32 if dtype == torch.float32 else np.float64)
    return factors, np.frombuffer(b"NT", np.uint8).copy()


def routine(dtype: torch.dtype) -> Routine:
    """The routine for one caller: memory that is written to is not shared."""
    return Routine(_address(dtype), np.zeros(6, np.int32), *_constants(dtype))


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


@compiled
def numbers_at(address, count, like):  # type: ignore[no-untyped-def]
    """``count`` numbers at an address, of the type that those in the array ``like`` have."""
    return numba.carray(_pointer(address), (count,), like.dtype)


@compiled
def outer_product(gemm, left, right, add, out):  # type: ignore[no-untyped-def]
    """``out ← leftᵀ·right``, or that added to it; rows are samples."""
    address, sizes, factors, letters = gemm
    item, (rows, height), width = left.itemsize, left.shape, right.shape[1]
    sizes[0], sizes[1], sizes[2] = width, height, rows
    sizes[3], sizes[4], sizes[5] = width, height, width
    first, one, letter = sizes.ctypes.data, factors.ctypes.data, letters.ctypes.data
    _call(
        address,
        (
            letter, letter + 1, first, first + 4, first + 8, one, right.ctypes.data, first + 12,
            left.ctypes.data, first + 16, one if add else one + item, out.ctypes.data, first + 20,
        ),
    )  # fmt: skip


@compiled
def product(gemm, left, weight, out, rows, places):  # type: ignore[no-untyped-def]
    """``out ← left·W`` or ``left·Wᵀ`` of the first ``rows``, W (out, in) in rows at the address
    ``weight``.

    ``places`` are the first columns of ``left`` and ``out``, the numbers of rows and columns of W,
    and whether W is transposed, which goes up.
    """
    address, sizes, factors, letters = gemm
    source, target, height, width, rising = places
    inner, outer = (width, height) if rising else (height, width)
    item = left.itemsize
    sizes[0], sizes[1], sizes[2] = outer, rows, inner
    sizes[3], sizes[4], sizes[5] = width, left.shape[1], out.shape[1]
    first, one, letter = sizes.ctypes.data, factors.ctypes.data, letters.ctypes.data
    # In columns, as the routine counts, it is outᵀ = W'·leftᵀ.
    _call(
        address,
        (
            letter + (1 if rising else 0), letter, first, first + 4, first + 8,
            one, weight, first + 12,
            left.ctypes.data + source * item, first + 16,
            one + item, out.ctypes.data + target * item, first + 20,
        ),
    )  # fmt: skip
