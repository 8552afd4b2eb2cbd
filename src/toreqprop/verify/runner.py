"""A verification from Python: tracks in, a typed report out; the command line prints it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toreqprop.evidence import Listener, Store, provenance, run_jobs
from toreqprop.evidence.job import Record
from toreqprop.verify.levels import LEVELS, QUICK, seeds_from
from toreqprop.verify.records import Job
from toreqprop.verify.registry import select
from toreqprop.verify.report import make_report
from toreqprop.verify.report_files import whole_folder, write_reports
from toreqprop.verify.self_test import Detection, detections, sabotage_jobs

KEPT = ".verification"
"""The folder of finished experiments, inside that of the reports."""


@dataclass(frozen=True)
class Verification:
    """What a verification found: the records, the self-test where there was one, the report as
    plain data, and the files it was written to."""

    records: dict[Job, Record]
    detections: tuple[Detection, ...] | None
    report: dict[str, Any]
    written: tuple[Path, ...]

    @property
    def passed(self) -> bool:
        """Whether every track that ran passed, repeated exactly where it ran twice, and every
        sabotage that could be tried was seen."""
        blind = any(d.available and not d.seen for d in self.detections or ())
        differs = bool(self.report["reproducibility"]["differing"])
        return bool(self.report["overall"]["passed"]) and not blind and not differs

    @property
    def complete(self) -> bool:
        """Whether every chosen track has an experiment and its data."""
        return all(t["status"] not in ("NOT RUN", "STUB") for t in self.report["tracks"])


def run_verification(
    tracks: Sequence[int] = (),
    *,
    names: Sequence[str] = (),
    level: str = "quick",
    seed: int = 42,
    seeds: int | None = None,
    self_test: bool = False,
    processes: int = 1,
    output: Path = Path("results"),
    fresh: bool = False,
    listener: Listener[Job] | None = None,
    executor: Executor | str | None = None,
) -> Verification:
    """Run tracks by number, or by names their titles hold, else all; write the report.

    A verification of all tracks goes to ``output/verification/LEVEL``, one of some of them to
    ``.../LEVEL-partial``, which never touches the whole one. Finished experiments are
    resumed. They are done in ``processes`` of this machine, or by an ``executor``: any
    `concurrent.futures.Executor`, or the address of a dask scheduler.

    Raises:
        InvalidInputError: an unknown track or level, or too few seeds for it.
    """
    started = time.time()
    jobs, honest = plan(tracks, names, level, seed, seeds, self_test)
    store = Store(output / KEPT)
    found = run_jobs(jobs, store, processes, listener, fresh=fresh, executor=executor)
    seen = detections(found.records) if self_test else None
    command = describe_command(tracks, names, level, seed, seeds, self_test)
    report = make_report({job: found.records[job] for job in honest}, LEVELS[level], seen)
    report |= provenance(command, started)
    report["timing"] |= {
        "experiment_seconds": sum(r["seconds"] for r in found.records.values()),
        "experiments": len(found.records),
        "jobs": processes if executor is None else "elsewhere",
        "reused": found.reused,
    }
    folder = whole_folder(output, level, whole=not tracks and not names)
    written = tuple(write_reports(report, folder))
    return Verification(found.records, None if seen is None else tuple(seen), report, written)


def plan(
    tracks: Sequence[int],
    names: Sequence[str],
    level: str,
    seed: int,
    seeds: int | None,
    self_test: bool,
) -> tuple[list[Job], list[Job]]:
    """All jobs of a verification, and those of them that the report is about.

    Sabotages are applied at the level of a smoke test, whatever the level of the report: a fault
    that few data show is shown by more. Beside them stands the honest smoke test of every track.
    """
    chosen = LEVELS[level]
    used = seeds_from(chosen, seed, seeds)
    picked = select(tracks, names)
    honest = [Job(track, chosen, used) for track in picked]
    if not self_test:
        return honest, honest
    beside = [Job(track, QUICK, seeds_from(QUICK, seed, seeds)) for track in picked]
    return list(dict.fromkeys(honest + beside + sabotage_jobs(beside))), honest


def describe_command(
    numbers: Sequence[int],
    names: Sequence[str],
    level: str,
    seed: int,
    seeds: int | None,
    self_test: bool,
) -> str:
    """The command that gives these results: all options that change them, and no folders."""
    parts = [f"toreqprop verify --{level}"]
    if numbers:
        parts.append("--track " + " ".join(map(str, numbers)))
    parts += [f"--require {name!r}" for name in names]
    if seed != 42:
        parts.append(f"--seed {seed}")
    if seeds is not None:
        parts.append(f"--seeds {seeds}")
    if self_test:
        parts.append("--self-test")
    return " ".join(parts)
