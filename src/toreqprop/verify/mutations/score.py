"""The mutation score: of the faults planted in the library, how many did the tracks see?"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from toreqprop.errors import DataUnavailableError, InvalidInputError
from toreqprop.evidence import Listener, Record, Store, provenance, run_jobs
from toreqprop.evidence.code import code_digest
from toreqprop.evidence.job import Job
from toreqprop.verify import records
from toreqprop.verify.levels import LEVELS, Level
from toreqprop.verify.mutations.catalogue import mutations
from toreqprop.verify.mutations.mutation import Mutation
from toreqprop.verify.registry import all_tracks

KEPT = ".verification"
"""The folder of finished runs, inside that of the reports."""


@dataclass(frozen=True)
class Planted(Job):
    """A track run with a fault, or with none: its honest run."""

    track: int
    fault: str | None
    level: str
    seeds: tuple[int, ...]

    @property
    def label(self) -> str:
        name = "no fault" if self.fault is None else self.fault
        plain = "".join(c if c.isalnum() else "-" for c in name)
        return f"mutation-{self.track:02d}-{self.level}-{plain}"

    @property
    def title(self) -> str:
        """What people read."""
        with_it = "without a fault" if self.fault is None else f"with: {self.fault}"
        return f"Track {self.track} {with_it}"

    @property
    def cost(self) -> float:
        return all_tracks()[self.track].cost

    @property
    def module(self) -> str:
        return self._job.module

    @property
    def _job(self) -> records.Job:
        return records.Job(all_tracks()[self.track], LEVELS[self.level], self.seeds)

    def settings(self) -> dict[str, Any]:
        faults = code_digest("toreqprop.verify.mutations.catalogue")
        return {**asdict(self), "faults": None if self.fault is None else faults}

    def perform(self, report: Callable[[Any], None]) -> Record:
        report("started")
        with nullcontext() if self.fault is None else mutations()[self.fault].plant():
            record = records.perform(self._job, report)
        if record["not_run"]:
            raise DataUnavailableError(record["not_run"])
        verdict = records.verdict_of(self._job.track, record)
        return {
            "status": verdict.status.value,
            "broken": [c.bound.says for c in verdict.checks if c.bound.required and not c.holds],
            "reason": verdict.reason,
            "timing": {"seconds": record["seconds"]},
        }

    def absent(self, reason: str, *, lost: bool) -> Record:
        status = "FAIL" if lost else "NOT RUN"
        return {"status": status, "broken": [], "reason": reason, "timing": {"seconds": 0.0}}


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
    key: str
    seconds: float

    @property
    def available(self) -> bool:
        return self.status != "NOT RUN"

    @property
    def seen(self) -> bool:
        return self.status == "FAIL" and bool(self.broken) and self.honest in ("PASS", "PARTIAL")


@dataclass(frozen=True)
class MutationReport:
    """All outcomes; the score is the share of available mutations that were seen, in percent.
    ``made`` has commit, command, environment and times."""

    level: str
    seeds: tuple[int, ...]
    outcomes: tuple[Outcome, ...]
    made: dict[str, Any]

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
            **self.made,
            "level": self.level,
            "seeds": list(self.seeds),
            "planted": self.planted,
            "seen": self.seen,
            "score": self.score,
            "mutations": rows,
        }


def chosen(tracks: Sequence[int], faults: Sequence[str] = ()) -> list[Mutation]:
    """The mutations that these tracks have to see, or those of these names; all where none is
    named.

    Raises:
        InvalidInputError: no mutation belongs to any of the tracks, or has one of the names.
    """
    for name in faults:
        if name not in mutations():
            near = ", ".join(get_close_matches(name, mutations(), 3, 0.3)) or "see mutations.json"
            raise InvalidInputError(f"No mutation is called {name!r}: {near}.")
    found = [
        m
        for m in mutations().values()
        if (not tracks or m.track in tracks) and (not faults or m.name in faults)
    ]
    if not found:
        known = ", ".join(str(t) for t in sorted({m.track for m in mutations().values()}))
        raise InvalidInputError(f"No mutation is for these tracks; there are some for {known}.")
    return found


def run_mutations(
    tracks: Sequence[int] = (),
    *,
    faults: Sequence[str] = (),
    level: str = "quick",
    seed: int = 42,
    seeds: int | None = None,
    processes: int = 1,
    output: Path = Path("results"),
    fresh: bool = False,
    listener: Listener[Planted] | None = None,
    executor: Executor | str | None = None,
) -> MutationReport:
    """Run every mutation's track with the fault and once without; finished runs are taken up.

    Raises:
        InvalidInputError: unknown level, tracks or faults, or fewer seeds than the level needs.
    """
    if level not in LEVELS:
        raise InvalidInputError(f"level must be one of {', '.join(LEVELS)}, got {level!r}.")
    started = time.time()
    used = _seeds(LEVELS[level], seed, seeds)
    planted = chosen(tracks, faults)
    jobs = [Planted(number, None, level, used) for number in sorted({m.track for m in planted})]
    jobs += [Planted(m.track, m.name, level, used) for m in planted]
    store = Store(output / KEPT)
    done = run_jobs(jobs, store, processes, listener, fresh=fresh, executor=executor)
    found = {(job.track, job.fault): record for job, record in done.records.items()}
    keys = {(job.track, job.fault): job.key for job in jobs}
    outcomes = tuple(
        _outcome(m, found[m.track, None], found[m.track, m.name], keys[m.track, m.name])
        for m in planted
    )
    command = " ".join(
        [f"toreqprop verify --mutations --{level}"]
        + ([f"--track {' '.join(map(str, tracks))}"] if tracks else [])
        + [f"--fault {name!r}" for name in faults]
        + ([f"--seed {seed}"] if seed != 42 else [])
        + ([f"--seeds {seeds}"] if seeds is not None else [])
    )
    made = provenance(command, started)
    made["timing"] |= {"jobs": processes, "reused": done.reused}
    return MutationReport(level, used, outcomes, made)


def _outcome(mutation: Mutation, honest: Record, found: Record, key: str) -> Outcome:
    return Outcome(
        name=mutation.name,
        area=mutation.area,
        does=mutation.does,
        track=mutation.track,
        title=all_tracks()[mutation.track].title,
        honest=honest["status"],
        status=found["status"],
        broken=tuple(found["broken"]),
        reason=found["reason"],
        key=key,
        seconds=found["timing"]["seconds"],
    )


def _seeds(level: Level, first: int, count: int | None) -> tuple[int, ...]:
    """As few as the level allows, unless told."""
    number = level.least_seeds if count is None else count
    if number < level.least_seeds:
        raise InvalidInputError(
            f"seeds must be >= {level.least_seeds} at level {level.title}, got {number}."
        )
    return tuple(range(first, first + number))
