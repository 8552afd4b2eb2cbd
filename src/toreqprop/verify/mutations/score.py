"""The mutation score: of the faults planted in the library, how many did the tracks see?"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

from toreqprop.errors import InvalidInputError, LostWorkError
from toreqprop.processes import perform_all, tell
from toreqprop.verify.levels import LEVELS, Level
from toreqprop.verify.mutations.catalogue import mutations
from toreqprop.verify.mutations.mutation import Mutation
from toreqprop.verify.records import Job, perform, verdict_of
from toreqprop.verify.registry import all_tracks

Key = tuple[int, str | None]
"""A track, and the mutation it is run with; None for the honest run."""


@dataclass(frozen=True)
class Run:
    """How one track ended: its status, the required bounds that do not hold, and why it broke."""

    status: str
    broken: tuple[str, ...]
    reason: str
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """A mutation and what its track made of it: seen if the track passes without it and fails with
    it, by a bound and not by a crash. ``available`` is False where the track's data is missing."""

    name: str
    area: str
    does: str
    track: int
    title: str
    honest: str
    status: str
    broken: tuple[str, ...]
    reason: str
    seconds: float

    @property
    def available(self) -> bool:
        return self.status != "NOT RUN"

    @property
    def seen(self) -> bool:
        return self.status == "FAIL" and bool(self.broken) and self.honest in ("PASS", "PARTIAL")


@dataclass(frozen=True)
class MutationReport:
    """All outcomes; the score is the share of available mutations that were seen, in percent."""

    level: str
    seeds: tuple[int, ...]
    outcomes: tuple[Outcome, ...]
    seconds: float

    @property
    def planted(self) -> int:
        return sum(o.available for o in self.outcomes)

    @property
    def seen(self) -> int:
        return sum(o.seen for o in self.outcomes if o.available)

    @property
    def score(self) -> float:
        return 100 * self.seen / self.planted if self.planted else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; all times are under ``timing``."""
        rows = [
            {k: v for k, v in asdict(o).items() if k != "seconds"} | {"seen": o.seen}
            for o in self.outcomes
        ]
        return {
            "level": self.level,
            "seeds": list(self.seeds),
            "planted": self.planted,
            "seen": self.seen,
            "score": self.score,
            "mutations": rows,
            "timing": {
                "seconds": self.seconds,
                "experiment_seconds": sum(o.seconds for o in self.outcomes),
            },
        }


class Listener:
    """What a display may want to know; every method may be left as it is."""

    def planned(self, count: int) -> None:
        """Before the first run."""

    def progress(self, key: Key, message: str) -> None:
        """A track says where it is."""

    def finished(self, key: Key, run: Run) -> None:
        """A run is over."""


def chosen(tracks: Sequence[int]) -> list[Mutation]:
    """The mutations that these tracks have to see; all where none is named.

    Raises:
        InvalidInputError: no mutation belongs to any of the tracks.
    """
    found = [m for m in mutations().values() if not tracks or m.track in tracks]
    if not found:
        known = ", ".join(str(t) for t in sorted({m.track for m in mutations().values()}))
        raise InvalidInputError(f"No mutation is for these tracks; there are some for {known}.")
    return found


def run_mutations(
    tracks: Sequence[int] = (),
    *,
    level: str = "quick",
    seed: int = 42,
    seeds: int | None = None,
    processes: int = 1,
    listener: Listener | None = None,
    executor: Executor | str | None = None,
) -> MutationReport:
    """Run every mutation's track with the fault and once without.

    Raises:
        InvalidInputError: unknown level or tracks, or fewer seeds than the level needs.
    """
    if level not in LEVELS:
        raise InvalidInputError(f"level must be one of {', '.join(LEVELS)}, got {level!r}.")
    if processes < 1:
        raise InvalidInputError(f"jobs must be >= 1, got {processes}.")
    used = _seeds(LEVELS[level], seed, seeds)
    planted = chosen(tracks)
    listener = Listener() if listener is None else listener
    started = time.monotonic()
    cost = {number: track.cost for number, track in all_tracks().items()}
    keys: list[Key] = [(number, None) for number in sorted({m.track for m in planted})]
    keys += [(m.track, m.name) for m in planted]
    keys.sort(key=lambda key: -cost[key[0]])
    found = _run_all(keys, level, used, processes, listener, executor)
    outcomes = tuple(
        Outcome(
            m.name, m.area, m.does, m.track, all_tracks()[m.track].title,
            found[m.track, None].status, **asdict(found[m.track, m.name]),
        )
        for m in planted
    )  # fmt: skip
    return MutationReport(level, used, outcomes, time.monotonic() - started)


def _seeds(level: Level, first: int, count: int | None) -> tuple[int, ...]:
    """As few as the level allows, unless told."""
    number = level.least_seeds if count is None else count
    if number < level.least_seeds:
        raise InvalidInputError(
            f"seeds must be >= {level.least_seeds} at level {level.title}, got {number}."
        )
    return tuple(range(first, first + number))


def _run_all(
    keys: list[Key],
    level: str,
    seeds: tuple[int, ...],
    processes: int,
    listener: Listener,
    executor: Executor | str | None,
) -> dict[Key, Run]:
    found: dict[Key, Run] = {}
    listener.planned(len(keys))

    def over(key: Key, run: Run) -> None:
        found[key] = run
        listener.finished(key, run)

    if processes == 1 and executor is None:
        for key in keys:
            over(key, _run(key, level, seeds, lambda text, key=key: listener.progress(key, text)))
        return found

    def done(key: Key, future: Future[Run]) -> None:
        try:
            over(key, future.result())
        except LostWorkError as error:
            over(key, Run("FAIL", (), str(error), 0.0))

    work = {key: (_in_worker, (key, level, seeds)) for key in keys}
    perform_all(work, processes, lambda news: listener.progress(*news), done, executor=executor)
    return found


def _in_worker(key: Key, level: str, seeds: tuple[int, ...]) -> Run:
    return _run(key, level, seeds, lambda text: tell((key, text)))


def _run(key: Key, level: str, seeds: tuple[int, ...], report: Any) -> Run:
    number, name = key
    track = all_tracks()[number]
    report("started")
    with nullcontext() if name is None else mutations()[name].plant():
        record = perform(Job(track, LEVELS[level], seeds), report)
    verdict = verdict_of(track, record)
    broken = tuple(c.bound.says for c in verdict.checks if c.bound.required and not c.holds)
    return Run(verdict.status.value, broken, verdict.reason, record["seconds"])
