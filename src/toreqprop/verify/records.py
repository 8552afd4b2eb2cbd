"""An experiment as a job: what it depends on, what it records, and what the rule says of it."""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from toreqprop.errors import ConvergenceWarning, DataUnavailableError
from toreqprop.evidence import job as evidence
from toreqprop.evidence.job import Record, digest
from toreqprop.verify.levels import LEVELS, Level
from toreqprop.verify.measurements import Measurements, decode, encode, plain
from toreqprop.verify.track import Context, Track
from toreqprop.verify.verdict import Status, Verdict, judge


@dataclass(frozen=True)
class Job(evidence.Job):
    """One experiment to do."""

    track: Track
    level: Level
    seeds: tuple[int, ...]
    sabotage: str | None = None

    @property
    def label(self) -> str:
        fault = f"-{self.sabotage.replace(' ', '-')}" if self.sabotage else ""
        return f"track-{self.track.number:02d}-{self.level.name}{fault}"

    @property
    def cost(self) -> float:
        return self.track.cost

    @property
    def module(self) -> str:
        return "toreqprop.verify.track" if self.track.run is None else self.track.run.__module__

    def settings(self) -> dict[str, Any]:
        return {
            "track": self.track.number,
            "level": asdict(self.level),
            "seeds": list(self.seeds),
            "sabotage": self.sabotage,
        }

    def perform(self, report: Callable[[Any], None]) -> Record:
        report("started")
        record = perform(self, report)
        if record["not_run"]:
            raise DataUnavailableError(record["not_run"])
        return record

    def absent(self, reason: str, *, lost: bool) -> Record:
        record = {**_blank(self), "error" if lost else "not_run": reason, "seconds": 0.0}
        return {**record, "hash": digest(self.repeatable(record))}

    def repeatable(self, record: Record) -> Any:
        """Times and memory are left out, and derived intervals, which follow from the counts."""
        content = {
            name: record[name]
            for name in ("track", "level", "seeds", "sabotage", "values", "checksums", "error")
        }
        for kind in ("tables", "figures"):
            content[kind] = [item for item in record[kind] if not item["volatile"]]
        return content

    def __reduce__(self) -> tuple[Any, ...]:
        # A track holds functions of its own, which do not travel: its number does.
        return _job, (self.track.number, self.level.name, self.seeds, self.sabotage)


def _job(number: int, level: str, seeds: tuple[int, ...], sabotage: str | None) -> Job:
    from toreqprop.verify.registry import all_tracks

    return Job(all_tracks()[number], LEVELS[level], seeds, sabotage)


def perform(job: Job, report: Callable[[str], None] = lambda message: None) -> Record:
    """Run the experiment and record what it measured, why it has no data, or its own fault."""
    started = time.perf_counter()
    track = job.track
    record = _blank(job)
    context = track.context(Context(job.level, job.seeds, report=report), job.sabotage)
    if track.run is not None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # counted, not printed
                found = track.run(context)
            if not isinstance(found, Measurements):
                raise TypeError(f"the experiment returned {type(found).__name__}, no measurements")
            record |= {
                "values": {name: encode(value) for name, value in found.values.items()},
                "timings": plain(dict(found.timings)),
                "tables": [plain(asdict(table)) for table in found.tables],
                "figures": [plain(asdict(figure)) for figure in found.figures],
            }
        except DataUnavailableError as error:
            record["not_run"] = str(error)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(last.filename).name}, line {last.lineno}"
            record["error"] = f"{type(error).__name__}: {error} ({place})"
    record["checksums"] = dict(sorted(context.checksums.items()))
    record["hash"] = digest(job.repeatable(record))
    record["seconds"] = time.perf_counter() - started
    return record


def _blank(job: Job) -> Record:
    return {
        "track": job.track.number,
        "level": job.level.name,
        "seeds": list(job.seeds),
        "sabotage": job.sabotage,
        "values": {},
        "timings": {},
        "tables": [],
        "figures": [],
        "checksums": {},
        "error": None,
        "not_run": None,
    }


def verdict_of(track: Track, record: Record) -> Verdict:
    """What the rule says of a record; nothing in the record can say otherwise."""
    if track.run is None:
        return Verdict(Status.STUB, 0.0, reason="no experiment yet")
    if record["not_run"]:
        return Verdict(Status.NOT_RUN, 0.0, reason=record["not_run"])
    if record["error"]:
        return Verdict(Status.FAIL, 0.0, reason=f"the experiment broke: {record['error']}")
    level = LEVELS[record["level"]]
    values = {name: decode(stored) for name, stored in record["values"].items()}
    return judge(track.bounds(level), {**record["timings"], **values}, level)


def without_sabotage(job: Job) -> Job:
    """The honest version of a job."""
    return replace(job, sabotage=None)
