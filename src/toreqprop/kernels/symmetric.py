"""Symmetric parts of square matrices, compiled: strips of the transpose, then whole rows."""

from __future__ import annotations

import numpy as np

from toreqprop.kernels.compiling import compiled, helper
from toreqprop.kernels.vectors import TILE, transpose_tile

STRIP = 2 * TILE
"""Rows of a strip: as many numbers of float32 are a line of the processor's cache."""


@helper
def transposed_strip(matrix, top, strip):  # type: ignore[no-untyped-def]
    """Write columns ``top`` to ``top + STRIP`` into the rows of ``strip``; returns how many."""
    n = matrix.shape[0]
    rows = min(STRIP, n - top)
    whole = n - n % TILE if rows == STRIP else 0
    for left in range(0, whole, TILE):
        for part in range(0, STRIP, TILE):
            transpose_tile(matrix, (left, top + part), strip, (part, left))
    for left in range(whole, n):
        for row in range(rows):
            strip[row, left] = matrix[left, top + row]
    return rows


@compiled
def symmetrise(matrix, out, factor):  # type: ignore[no-untyped-def]
    """``factor·(M + Mᵀ)``."""
    n = matrix.shape[0]
    scale = matrix.dtype.type(factor)
    strip = np.empty((STRIP, n), matrix.dtype)
    for top in range(0, n, STRIP):
        for row in range(transposed_strip(matrix, top, strip)):
            across, down, result = matrix[top + row], strip[row], out[top + row]
            for j in range(n):
                result[j] = scale * (across[j] + down[j])
