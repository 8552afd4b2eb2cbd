"""Finished runs on disk: each in a file of its own, written at once and whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toreqprop.bench.run import Run
from toreqprop.sealed import read_sealed, write_sealed


@dataclass(frozen=True)
class Store:
    """A folder of measurements, named by run and by the digest of its configuration."""

    folder: Path

    def path(self, run: Run) -> Path:
        return self.folder / f"{run.label}-{run.key}.json"

    def load(self, run: Run) -> dict[str, Any] | None:
        """The measurement of this very configuration, or None where there is none to use."""
        found = read_sealed(self.path(run))
        return found if found is not None and found.get("key") == run.key else None

    def save(self, run: Run, measurement: dict[str, Any]) -> None:
        write_sealed(self.path(run), measurement)
