"""A search for hyperparameters that was stopped goes on: what it began with, and what it found."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from toreqprop.bench.settings import ModelName, ModelSettings
from toreqprop.bench.tuning import Trial
from toreqprop.sealed import read_sealed, write_sealed


@dataclass
class Journal:
    """Beside the file to be written, for as long as a search lasts."""

    path: Path
    request: dict[str, Any]
    found: dict[str, dict[str, list[Trial]]] = field(default_factory=dict)

    @staticmethod
    def of(output: Path, request: dict[str, Any]) -> Journal:
        """The journal of an equal request that was stopped, else a new one."""
        path = output.with_name(f".{output.name}.tuning")
        kept = read_sealed(path)
        if kept is None or kept.get("request") != request:
            return Journal(path, request)
        found = {
            name: {model: [_trial(t) for t in trials] for model, trials in models.items()}
            for name, models in kept["found"].items()
        }
        return Journal(path, request, found)

    def add(self, name: str, model: ModelName, trials: list[Trial]) -> None:
        """Note a finished search, on disk."""
        self.found.setdefault(name, {})[model] = trials
        plain = {
            name: {model: [asdict(t) for t in trials] for model, trials in models.items()}
            for name, models in self.found.items()
        }
        write_sealed(self.path, {"request": self.request, "found": plain})

    def end(self) -> None:
        """All is done: the next search begins with what is in the file then."""
        self.path.unlink(missing_ok=True)


def _trial(stored: dict[str, Any]) -> Trial:
    plain = {**stored, "accuracies": tuple(stored["accuracies"])}
    return Trial(**{**plain, "settings": ModelSettings(**stored["settings"])})
