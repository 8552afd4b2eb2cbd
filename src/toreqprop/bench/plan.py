"""Which runs make up a benchmark: rows × seeds × arms, negative controls, sensitivity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from toreqprop.bench.hyperparameters import has_settings, read, settings
from toreqprop.bench.rows import ROWS, Row, row
from toreqprop.bench.run import Control, Run
from toreqprop.bench.settings import ModelName, TaskSettings
from toreqprop.errors import InvalidInputError

FIRST_SEED = 42
QUICK_SEEDS = 3

Level = Literal["quick", "full"]

BETAS = (0.001, 0.01, 0.1, 0.3, 1.0)
MAX_STEPS = (1, 2, 5, 10, 30)
"""What the sensitivity study trains the first row with, instead of the row's own."""

STUDIED_SEEDS = 3
"""The most seeds of that study and of the controls."""

IMPLICIT_SEEDS: dict[Level, int] = {"quick": 1, "full": 3}
"""Seeds of the implicit gradient: it costs as much as the other arms together, and no verdict is
about it. It says how much of a gap is the gradient's."""


@dataclass(frozen=True)
class Plan:
    """A benchmark to be run; ``seeds`` replaces the level's number, ``epochs`` the rows'."""

    rows: tuple[Row, ...]
    level: Level = "quick"
    seeds: int | None = None
    first_seed: int = FIRST_SEED
    controls: bool = True
    epochs: int | None = None
    hyperparameters: Path | None = None
    whole: bool = False

    @property
    def folder(self) -> str:
        """Where the report goes: one that is not whole never takes the place of one that is."""
        return f"benchmark/{self.level}" if self.whole else f"benchmark/{self.level}-partial"

    def seeds_of(self, of: Row) -> tuple[int, ...]:
        """The seeds of a row."""
        level = QUICK_SEEDS if self.level == "quick" else of.seeds
        count = level if self.seeds is None else self.seeds
        return tuple(range(self.first_seed, self.first_seed + count))

    def untuned(self) -> dict[str, str]:
        """The rows that have no settings, and what to do about it."""
        content = read(self.hyperparameters)
        return {
            of.name: f"it has no settings yet: `toreqprop tune {of.name}` finds them"
            for of in self.rows
            if not has_settings(of.name, content)
        }

    def runs(self) -> list[Run]:
        """Every run, in the order of the report."""
        content, absent = read(self.hyperparameters), self.untuned()
        tuned = [of for of in self.rows if of.name not in absent]
        main = [
            Run(of.name, arm, seed, chosen, of.all_images, detailed=seed == self.first_seed)
            for of in tuned
            for chosen in [self._settings(of, content)]
            for number, seed in enumerate(self.seeds_of(of))
            for arm in chosen.arms
            if arm != "implicit" or number < IMPLICIT_SEEDS[self.level]
        ]
        if not tuned or not self.controls:
            return main
        first = tuned[0], self._settings(tuned[0], content)
        return main + self._control_runs(*first) + self._sensitivity_runs(*first)

    def _control_runs(self, of: Row, chosen: TaskSettings) -> list[Run]:
        """The controls, on the first row: they are about the method, not about a task."""
        kinds: list[tuple[Control, tuple[ModelName, ...]]] = [
            ("shuffled-labels", ("ep", "backprop")),
            ("no-nudge", ("ep",)),
            ("no-spectral-norm", ("ep",)),
        ]
        return [
            Run(
                of.name, arm, seed, chosen, of.all_images, control,
                detailed=control == "no-spectral-norm" and seed == self.first_seed,
            )
            for control, arms in kinds
            for seed in self.seeds_of(of)[:STUDIED_SEEDS]
            for arm in arms
        ]  # fmt: skip

    def _sensitivity_runs(self, of: Row, chosen: TaskSettings) -> list[Run]:
        values = [("beta", b) for b in BETAS] + [("max_steps", float(n)) for n in MAX_STEPS]
        return [
            Run(of.name, "ep", seed, chosen, of.all_images, variant=variant)
            for variant in values
            for seed in self.seeds_of(of)[:STUDIED_SEEDS]
        ]

    def _settings(self, of: Row, content: dict[str, Any]) -> TaskSettings:
        chosen = settings(of.name, content=content)
        return chosen if self.epochs is None else replace(chosen, epochs=self.epochs)

    def command(self) -> str:
        """The command that gives these results: all options that change them, and no folders."""
        parts = ["toreqprop benchmark"]
        if self.level == "full":
            parts.append("--full")
        if self.rows != level_rows(self.level):
            parts.append(f"--tasks {','.join(of.name for of in self.rows)}")
        if self.seeds is not None:
            parts.append(f"--seeds {self.seeds}")
        if self.first_seed != FIRST_SEED:
            parts.append(f"--seed {self.first_seed}")
        if self.epochs is not None:
            parts.append(f"--epochs {self.epochs}")
        if self.hyperparameters is not None:
            parts.append(f"--hyperparameters {self.hyperparameters.name}")
        if not self.controls:
            parts.append("--no-controls")
        return " ".join(parts)


def level_rows(level: Level) -> tuple[Row, ...]:
    """The rows of a level."""
    return tuple(of for of in ROWS if of.quick or level == "full")


def make_plan(
    rows: Sequence[str] | None = None,
    *,
    full: bool = False,
    seeds: int | None = None,
    first_seed: int = FIRST_SEED,
    controls: bool = True,
    epochs: int | None = None,
    hyperparameters: Path | None = None,
) -> Plan:
    """A plan for the named rows, by default all of the level.

    Raises:
        InvalidInputError: an unknown row, or numbers that make no sense.
    """
    level: Level = "full" if full else "quick"
    chosen = tuple(row(name) for name in dict.fromkeys(rows)) if rows else level_rows(level)
    if seeds is not None and seeds < 1:
        raise InvalidInputError(f"seeds must be >= 1, got {seeds}. The quick report uses 3.")
    if epochs is not None and epochs < 1:
        raise InvalidInputError(f"epochs must be >= 1, got {epochs}.")
    given = (seeds, epochs, hyperparameters)
    own = rows is None and controls and first_seed == FIRST_SEED
    whole = own and all(value is None for value in given)
    return Plan(chosen, level, seeds, first_seed, controls, epochs, hyperparameters, whole)
