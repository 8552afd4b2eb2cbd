"""A job: one measurement with everything it depends on; and the folder its record is kept in."""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toreqprop.evidence.code import code_digest
from toreqprop.evidence.provenance import deciding_versions
from toreqprop.sealed import read_sealed, write_sealed

Record = dict[str, Any]
"""Plain data. Wall-clock figures are only under keys ``timing``."""


class Job(ABC):
    """What is measured, hashable and able to travel to another process."""

    @property
    @abstractmethod
    def label(self) -> str:
        """What file names and the live display call it."""

    @property
    @abstractmethod
    def cost(self) -> float:
        """Roughly how long it takes, in any unit: long jobs are begun first."""

    @property
    @abstractmethod
    def module(self) -> str:
        """The module whose code does the job; what that imports is part of the key."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """All the measurement depends on beside code and versions, data files' digests included."""

    @abstractmethod
    def perform(self, report: Callable[[Any], None]) -> Record:
        """Measure. ``report`` takes news for a display.

        Raises:
            DataUnavailableError: its data is not available.
        """

    @abstractmethod
    def absent(self, reason: str, *, lost: bool) -> Record:
        """The record of a job that was not done: its data is not available, or its process was
        killed (``lost``)."""

    def repeatable(self, record: Record) -> Any:
        """The part of a record that a second run must repeat to the last bit."""
        return without_times(record)

    @property
    def key(self) -> str:
        """A digest of settings, code and versions: equal keys, equal measurements."""
        return key_of(self.module, self.settings())


def key_of(module: str, settings: dict[str, Any]) -> str:
    """The key of a measurement that ``module`` makes with these settings, by the code of today."""
    content = {
        "settings": settings,
        "code": code_digest(module),
        "versions": deciding_versions(),
    }
    return digest(content)[:16]


def digest(content: Any) -> str:
    """SHA-256 of plain data."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def without_times(value: Any) -> Any:
    """The same plain data without anything under a key ``timing``."""
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k != "timing"}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def finite(value: Any) -> Any:
    """The same plain data with None for numbers that are not finite, which JSON does not have."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class Store:
    """A folder of records, each in a file of its own, whole or not at all."""

    folder: Path

    def path(self, job: Job) -> Path:
        return self.folder / f"{job.label}-{job.key}.json"

    def load(self, job: Job) -> Record | None:
        """The record of this very job under this very code, or None."""
        return self._read(self.path(job), job.key)

    def _read(self, path: Path, key: str) -> Record | None:
        found = read_sealed(path)
        return found if found is not None and found.get("key") == key else None

    def save(self, job: Job, record: Record) -> Record:
        """Keep a record with its key and the hash of what is repeatable in it; where the same job
        was recorded before, ``confirmed`` says whether it came out alike."""
        path, key = self.path(job), job.key
        record = finite(record)  # what diverged is a finding, not an error
        record = {**record, "key": key, "hash": digest(job.repeatable(record))}
        before = self._read(path, key)
        if before is not None:
            record["confirmed"] = before["hash"] == record["hash"]
        write_sealed(path, record)
        return record
