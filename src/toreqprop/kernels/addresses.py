"""What lies at an address, as an array: compiled steps are given their memory that way."""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from toreqprop.kernels.compiling import helper


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


@intrinsic
def call(typing, address, arguments):  # type: ignore[no-untyped-def]
    """Call C's function at ``address`` with whole numbers; what it returns, if it does."""
    signature = types.int64(types.int64, arguments)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        place, given = args
        word = ir.IntType(64)
        kind = ir.FunctionType(word, [word] * len(arguments))
        function = builder.inttoptr(place, kind.as_pointer())
        return builder.call(
            function, [builder.extract_value(given, k) for k in range(len(arguments))]
        )

    return signature, codegen
