"""The idx format of the MNIST family: a magic number, the dimensions, then unsigned bytes."""

from __future__ import annotations

import struct

import numpy as np

from toreqprop.errors import InvalidInputError

_UNSIGNED_BYTE = 0x08


def parse_idx(content: bytes, dimensions: int, name: str = "the file") -> np.ndarray:
    """Read uncompressed idx bytes as a uint8 array with the given number of dimensions.

    Raises:
        InvalidInputError: the magic number is another one, or the length does not fit the header.
    """
    expected = _UNSIGNED_BYTE << 8 | dimensions
    magic = int.from_bytes(content[:4], "big")
    if len(content) < 4 or magic != expected:
        raise InvalidInputError(
            f"{name} starts with the magic number 0x{magic:08x}, expected 0x{expected:08x}: "
            f"it is not an idx file of unsigned bytes in {dimensions} dimension(s)."
        )
    header = 4 + 4 * dimensions
    if len(content) < header:
        raise InvalidInputError(f"{name} ends inside its idx header of {header} bytes.")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    size = int(np.prod(shape, dtype=np.int64))
    if len(content) - header != size:
        raise InvalidInputError(
            f"{name} holds {len(content) - header} bytes of data, but its header "
            f"announces {size} ({' x '.join(map(str, shape))})."
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)
