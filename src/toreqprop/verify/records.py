"""Finished experiments on disk, each whole or not at all, and the hash that a second run confirms.

A record is reused only for the same track, level, seeds, sabotage, versions and code.
"""

from __future__ import annotations

import hashlib
import json
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import toreqprop
from toreqprop.errors import ConvergenceWarning, DataUnavailableError
from toreqprop.sealed import read_sealed, write_sealed
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Measurements, decode, encode, plain
from toreqprop.verify.track import Context, Track
from toreqprop.verify.verdict import Status, Verdict, judge

Record = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One experiment to do: everything its measurements depend on, the code apart."""

    track: Track
    level: Level
    seeds: tuple[int, ...]
    sabotage: str | None = None

    @property
    def label(self) -> str:
        """What file names and the live display call it."""
        fault = f"-{self.sabotage.replace(' ', '-')}" if self.sabotage else ""
        return f"track-{self.track.number:02d}-{self.level.name}{fault}"

    @property
    def key(self) -> str:
        """A digest of the configuration, the versions and the library's source."""
        content = {
            "track": self.track.number,
            "level": asdict(self.level),
            "seeds": self.seeds,
            "sabotage": self.sabotage,
            "code": [source_digest(), self.track.source],
            "versions": {name: metadata.version(name) for name in ("torch", "numpy", "scipy")},
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


LOOKS = (
    "cli/", "progress_bars.py", "templates.py",
    "verify/report", "verify/figures", "verify/display", "verify/tracks/",
)  # fmt: skip
"""Sources that decide how a measurement is shown; a track's own is part of its key."""


@cache
def source_digest() -> str:
    """A digest of every source file that can change a measurement, the tracks' own apart.

    Hyperparameters count as source: tracks train with them.
    """
    root = Path(toreqprop.__file__).parent
    digest = hashlib.sha256()
    for path in sorted([*root.rglob("*.py"), *root.rglob("*.json")]):
        name = path.relative_to(root).as_posix()
        if not name.startswith(LOOKS):
            digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def perform(job: Job, report: Callable[[str], None] = lambda message: None) -> Record:
    """Run the experiment and record what it measured; a fault of its own is part of the record."""
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
    record["hash"] = reproducibility_hash(record)
    record["seconds"] = time.perf_counter() - started
    return record


def lost(job: Job, reason: str) -> Record:
    """The record of an experiment whose process was killed: it has no measurements."""
    record = {**_blank(job), "error": reason, "seconds": 0.0}
    return {**record, "hash": reproducibility_hash(record)}


def _blank(job: Job) -> Record:
    return {
        "track": job.track.number,
        "key": job.key,
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


def reproducibility_hash(record: Record) -> str:
    """SHA-256 of all that a second run must repeat to the last bit; times and memory are left out.

    Derived intervals are left out too: they follow from the counts.
    """
    content = {
        name: record[name]
        for name in ("track", "level", "seeds", "sabotage", "values", "checksums", "error")
    }
    for kind in ("tables", "figures"):
        content[kind] = [item for item in record[kind] if not item["volatile"]]
    text = json.dumps(content, sort_keys=True, allow_nan=False, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def verdict_of(track: Track, record: Record) -> Verdict:
    """What the rule says of a record; nothing in the record can say otherwise."""
    from toreqprop.verify.levels import LEVELS

    if track.run is None:
        return Verdict(Status.STUB, 0.0, reason="no experiment yet")
    if record["not_run"]:
        return Verdict(Status.NOT_RUN, 0.0, reason=record["not_run"])
    if record["error"]:
        return Verdict(Status.FAIL, 0.0, reason=f"the experiment broke: {record['error']}")
    level = LEVELS[record["level"]]
    values = {name: decode(stored) for name, stored in record["values"].items()}
    return judge(track.bounds(level), {**record["timings"], **values}, level)


@dataclass(frozen=True)
class Records:
    """A folder of records."""

    folder: Path

    def path(self, job: Job) -> Path:
        return self.folder / f"{job.label}-{job.key}.json"

    def load(self, job: Job) -> Record | None:
        """The record of this very job, or None; one without measurements is not worth keeping."""
        found = read_sealed(self.path(job))
        usable = found is not None and found.get("key") == job.key
        return found if found is not None and usable and not found.get("not_run") else None

    def save(self, job: Job, record: Record) -> Record:
        """Store a record; where the same job was recorded before, say whether it came out alike."""
        before = self.load(job)
        if before is not None and not record["not_run"]:
            record = {**record, "confirmed": before["hash"] == record["hash"]}
        write_sealed(self.path(job), record)
        return record


def without_sabotage(job: Job) -> Job:
    """The honest version of a job."""
    return replace(job, sabotage=None)
