"""What lies at an address, as an array: compiled steps are given their memory that way."""

from __future__ import annotations

from typing import Any

import numba
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
