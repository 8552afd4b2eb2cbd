"""idx bytes: what is read, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_files import idx_bytes

from toreqprop.errors import InvalidInputError
from toreqprop.tasks.idx import parse_idx


def test_reads_back_what_was_written() -> None:
    array = np.arange(24, dtype=np.uint8).reshape(4, 3, 2)
    np.testing.assert_array_equal(parse_idx(idx_bytes(array), 3), array)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (idx_bytes(np.zeros(3, np.uint8)), "0x00000801, expected 0x00000803"),
        (b"<html>no such file</html>", "expected 0x00000803"),
        (b"", "expected 0x00000803"),
        (b"\0\0\x08\x03\0\0", "inside its idx header"),
        (idx_bytes(np.zeros((4, 3, 2), np.uint8))[:-1], "23 bytes of data.* announces 24"),
        (idx_bytes(np.zeros((4, 3, 2), np.uint8)) + b"\0", "25 bytes of data.* announces 24"),
    ],
)
def test_refuses_anything_else(content: bytes, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        parse_idx(content, 3)
