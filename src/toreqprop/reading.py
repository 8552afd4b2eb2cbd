"""Files from outside: regular ones, of a size that fits, read once."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from toreqprop.errors import InvalidInputError


def read_regular(path: Path, limit: int) -> bytes:
    """The content of a regular file of at most ``limit`` bytes; links to one are followed.

    A pipe or a device is never read, as it may have no end.

    Raises:
        InvalidInputError: it is no regular file, or it is larger.
        OSError: it cannot be opened.
    """
    # Without O_NONBLOCK opening a pipe waits for whoever writes to it.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise InvalidInputError(f"{path} is a pipe or a device: give a file.")
        content = file.read(limit + 1) if found.st_size <= limit else b""
    if found.st_size > limit or len(content) > limit:
        raise InvalidInputError(
            f"{path} has {found.st_size:,} bytes, more than the {limit:,} that are read: use a "
            "smaller file."
        )
    return content
