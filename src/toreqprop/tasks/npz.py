"""Arrays of an NPZ file, each measured by its header before anything is unpacked."""

from __future__ import annotations

import io
import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from toreqprop.errors import InvalidInputError

UNPACKED_LIMIT = 2**31
"""Bytes that one array may take."""

_DAMAGE = (
    ValueError, OSError, EOFError, KeyError, TypeError, SyntaxError, RuntimeError, OverflowError,
    MemoryError, NotImplementedError, struct.error, tokenize.TokenError, zlib.error,
    lzma.LZMAError, zipfile.BadZipFile,
)  # fmt: skip
"""What damaged archives make zipfile and NumPy raise."""


def read_arrays(path: Path, content: bytes, wanted: Sequence[str]) -> dict[str, np.ndarray | None]:
    """Every array's name, with its values where it is ``wanted``; nothing is unpickled.

    Raises:
        InvalidInputError: it is damaged, holds Python objects, or an array is too large.
    """
    if not zipfile.is_zipfile(io.BytesIO(content)):
        raise InvalidInputError(f"{path} cannot be read as NPZ: it is damaged or no NPZ file.")
    found: dict[str, np.ndarray | None] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                if name in found:
                    raise InvalidInputError(f"{path} has two arrays called {name!r}: keep one.")
                found[name] = None
                if name in wanted:
                    found[name] = _read(path, archive, member)
    except InvalidInputError:
        raise
    except _DAMAGE:
        raise InvalidInputError(f"{path} cannot be read as NPZ: it is damaged.") from None
    return found


def _read(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    name = member.filename.removesuffix(".npy")
    if member.file_size > UNPACKED_LIMIT:
        raise InvalidInputError(
            f"{path}: {name} unpacks to {member.file_size:,} bytes, more than the "
            f"{UNPACKED_LIMIT:,} that are read: keep fewer samples or a smaller type."
        )
    with archive.open(member) as file:
        version = npy.read_magic(file)
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, by_column, dtype = read_header(file)
        if dtype.hasobject:
            raise InvalidInputError(f"{path} cannot be read as NPZ: it holds Python objects.")
        # A zip file yields at most the bytes it announces, whatever it was packed from.
        values = file.read()
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != len(values):
        raise InvalidInputError(
            f"{path}: {name} announces an array of shape {_short(shape)} and holds {len(values):,} "
            "bytes: it is damaged."
        )
    flat = np.frombuffer(values, dtype=dtype) if values else np.empty(0, dtype)
    return flat.reshape(shape, order="F" if by_column else "C")


def _short(shape: tuple[int, ...]) -> str:
    text = ", ".join(str(size) for size in shape[:4])
    return f"({text}{', ...' if len(shape) > 4 else ''})"
