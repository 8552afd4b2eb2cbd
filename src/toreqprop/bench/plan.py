"""Which runs make up a benchmark: tasks × models × seeds, and the negative controls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from toreqprop.bench.hyperparameters import MODELS, ModelName, read, settings
from toreqprop.bench.rows import ROWS, WITH_MORE_DATA, task_of
from toreqprop.bench.run import Control, Run
from toreqprop.errors import InvalidInputError

FIRST_SEED = 42


@dataclass(frozen=True)
class Plan:
    """A benchmark to be run; ``epochs`` replaces the tuned number, for a quick look."""

    tasks: tuple[str, ...]
    seeds: tuple[int, ...]
    full: bool = False
    controls: bool = True
    epochs: int | None = None
    hyperparameters: Path | None = None

    def runs(self) -> list[Run]:
        """Every run, in the order of the report."""
        content = read(self.hyperparameters)
        main = [
            self._run(content, task, model, seed)
            for task in self.tasks
            for seed in self.seeds
            for model in MODELS
        ]
        return main + self.control_runs(content)

    def control_runs(self, content: dict[str, Any]) -> list[Run]:
        """The controls, on the first task: they are about the method, not about a task."""
        if not self.controls:
            return []
        task = self.tasks[0]
        kinds: list[tuple[Control, tuple[ModelName, ...]]] = [
            ("shuffled-labels", MODELS),
            ("no-nudge", ("ep",)),
            ("no-spectral-norm", ("ep",)),
        ]
        return [
            replace(self._run(content, task, model, seed), control=control)
            for control, models in kinds
            for seed in self.seeds
            for model in models
        ]

    def _run(self, content: dict[str, Any], task: str, model: ModelName, seed: int) -> Run:
        chosen = settings(task, self.full, content)
        if self.epochs is not None:
            chosen = replace(chosen, epochs=self.epochs)
        return Run(task, model, seed, chosen, self.full)


def make_plan(
    tasks: Sequence[str] | None,
    seeds: int,
    *,
    full: bool = False,
    controls: bool | None = None,
    epochs: int | None = None,
    hyperparameters: Path | None = None,
) -> Plan:
    """A plan for the named tasks, by default all (with ``full``, those that have more data).

    Controls are part of it unless ``full``, where they would only repeat those of the main job.
    """
    known = WITH_MORE_DATA if full else ROWS
    names = tuple(dict.fromkeys(tasks or known))
    for name in names:
        task_of(name)
        if name not in known:
            raise InvalidInputError(
                f"{name} has no larger data set: --full-data serves {' and '.join(known)}."
            )
    if seeds < 1:
        raise InvalidInputError(f"seeds must be >= 1, got {seeds}. The reports use 3.")
    if epochs is not None and epochs < 1:
        raise InvalidInputError(f"epochs must be >= 1, got {epochs}.")
    numbers = tuple(range(FIRST_SEED, FIRST_SEED + seeds))
    with_controls = not full if controls is None else controls
    return Plan(names, numbers, full, with_controls, epochs, hyperparameters)
