"""How much evidence a verification gathers: the three levels and what each demands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from toreqprop.errors import InvalidInputError

T = TypeVar("T")


@dataclass(frozen=True)
class Level:
    """``least_seeds`` is what an accuracy or a comparison needs to count at this level at all."""

    name: str
    title: str
    seeds: int
    least_seeds: int

    def pick(self, quick: T, intermediate: T, full: T) -> T:
        """The value that belongs to this level: sizes, epochs, tasks."""
        return {"quick": quick, "intermediate": intermediate, "full": full}[self.name]


QUICK = Level("quick", "Smoke Test", seeds=3, least_seeds=1)
INTERMEDIATE = Level("intermediate", "Intermediate", seeds=3, least_seeds=3)
FULL = Level("full", "Full", seeds=5, least_seeds=5)

LEVELS: dict[str, Level] = {level.name: level for level in (QUICK, INTERMEDIATE, FULL)}


def seeds_from(level: Level, first: int, count: int | None) -> tuple[int, ...]:
    """The seeds of a run, counted from ``first``; as many as the level has unless told.

    Raises:
        InvalidInputError: fewer than the level's evidence needs.
    """
    number = level.seeds if count is None else count
    if number < level.least_seeds:
        raise InvalidInputError(
            f"seeds must be >= {level.least_seeds} at level {level.title}, got {number}. "
            "Use --quick for fewer."
        )
    return tuple(range(first, first + number))
