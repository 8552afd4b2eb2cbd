"""Records on disk with a seal: one that was cut, edited or exchanged is as good as none."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from toreqprop.atomic import write_atomically
from toreqprop.reading import read_regular

LIMIT = 2**28
"""Bytes of a record that are read."""


def write_sealed(path: Path, content: dict[str, Any]) -> None:
    """Write plain data with its digest, whole or not at all."""
    content = json.loads(json.dumps(content, allow_nan=False))  # as it will be read
    text = json.dumps(content, allow_nan=False, sort_keys=True)
    record = {"sha256": _digest(text), "content": content}
    write_atomically(path, json.dumps(record, allow_nan=False) + "\n")


def read_sealed(path: Path) -> dict[str, Any] | None:
    """What `write_sealed` wrote there; None where nothing is, or something else."""
    try:
        record = json.loads(read_regular(path, LIMIT))
        content = record["content"]
        text = json.dumps(content, allow_nan=False, sort_keys=True)
        intact = record["sha256"] == _digest(text)
    except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None  # a refusal of `read_regular` is a ValueError
    return content if intact and isinstance(content, dict) else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
