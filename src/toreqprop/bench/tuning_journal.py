"""A search for settings that was stopped goes on: what was asked for, and what was found."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from toreqprop.bench.hyperparameters import searched
from toreqprop.bench.rows import row
from toreqprop.bench.settings import ModelName
from toreqprop.bench.tuning import Trial, trial_of
from toreqprop.sealed import read_sealed, write_sealed

Search = tuple[str, ModelName, int]
"""A row, an arm and a round, 1 or 2."""


@dataclass
class Journal:
    """Beside the file to be written, for as long as a search lasts."""

    path: Path
    request: dict[str, Any]
    found: dict[str, list[Trial]] = field(default_factory=dict)

    @staticmethod
    def of(output: Path, request: dict[str, Any]) -> Journal:
        """The journal of an equal request that was stopped, else a new one."""
        path = output.with_name(f".{output.name}.tuning")
        kept = read_sealed(path)
        if kept is None or kept.get("request") != request:
            return Journal(path, request)
        found = {key: [trial_of(t) for t in trials] for key, trials in kept["found"].items()}
        return Journal(path, request, found)

    def add(self, name: str, arm: ModelName, number: int, trials: list[Trial]) -> None:
        """Note a finished search, on disk."""
        self.found[_key(name, arm, number)] = trials
        plain = {key: [asdict(t) for t in found] for key, found in self.found.items()}
        write_sealed(self.path, {"request": self.request, "found": plain})

    def has(self, name: str, arm: ModelName, number: int) -> bool:
        """Whether this search is finished."""
        return _key(name, arm, number) in self.found

    def first(self, name: str) -> dict[ModelName, list[Trial]]:
        """What the first round found for every arm of a row."""
        return {arm: self.found[_key(name, arm, 1)] for arm in searched(row(name))}

    def both(self, name: str, arm: ModelName) -> list[Trial]:
        """All trials of an arm."""
        return self.found[_key(name, arm, 1)] + self.found[_key(name, arm, 2)]

    def end(self) -> None:
        """All is done: the next search begins anew."""
        self.path.unlink(missing_ok=True)


def _key(name: str, arm: ModelName, number: int) -> str:
    return f"{name}, {arm}, {number}"
