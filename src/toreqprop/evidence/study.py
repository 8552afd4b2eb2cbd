"""A study: functions of plain arguments as jobs, and one file that holds what they measured."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from toreqprop.atomic import write_atomically
from toreqprop.errors import DataUnavailableError, LostWorkError
from toreqprop.evidence.job import Job, Record, Store, key_of
from toreqprop.evidence.provenance import provenance
from toreqprop.evidence.runner import Listener, run_jobs
from toreqprop.tasks.files import COLLECTIONS

KEPT = ".partial"
"""The folder of finished measurements, inside that of the results."""


@dataclass(frozen=True)
class Measurement(Job):
    """One call of a function.

    Args:
        study: what commands and files call the study.
        name: what tells this measurement from the others of it.
        function: ``package.module:function``; it returns plain data, times under ``timing``.
        arguments: what it is called with, plain data too.
        tasks: the data sets it loads; their checksums are part of the key.
        weight: roughly how long it takes, in any unit.
    """

    study: str
    name: str
    function: str
    arguments: tuple[tuple[str, Any], ...] = ()
    tasks: tuple[str, ...] = ()
    weight: float = 1.0

    @property
    def label(self) -> str:
        return "-".join(
            [self.study, *"".join(c if c.isalnum() else " " for c in self.name).split()]
        )

    @property
    def cost(self) -> float:
        return self.weight

    @property
    def module(self) -> str:
        return self.function.partition(":")[0]

    def settings(self) -> dict[str, Any]:
        files = [file for task in self.tasks if task in COLLECTIONS
                 for file in COLLECTIONS[task].files]  # fmt: skip
        return {
            "function": self.function,
            "arguments": json.loads(json.dumps(dict(self.arguments))),
            "data": {file.name: file.sha256 for file in files},
        }

    def perform(self, report: Callable[[Any], None]) -> Record:
        report("started")
        module, _, name = self.function.partition(":")
        wall, processor = time.perf_counter(), time.process_time()
        found = getattr(import_module(module), name)(**dict(self.arguments))
        timing = {
            "seconds": time.perf_counter() - wall,
            "cpu_seconds": time.process_time() - processor,
        }
        return {"found": json.loads(json.dumps(found)), "timing": timing}

    def absent(self, reason: str, *, lost: bool) -> Record:
        return {"not_run": reason, "lost": lost}


def run_study(
    measurements: Sequence[Measurement],
    assemble: Callable[[list[Any]], dict[str, Any]],
    *,
    command: str,
    path: Path,
    processes: int = 1,
    fresh: bool = False,
    listener: Listener[Measurement] | None = None,
) -> dict[str, Any]:
    """Do the measurements, in their order, and write what ``assemble`` makes of them to ``path``.

    The file also has commit, command, environment and times, and of every measurement what its key
    is made of, so that `stale` can tell whether it would come out alike today. Finished
    measurements are kept in the folder of the file and taken up by the next call.

    Raises:
        DataUnavailableError: a data set cannot be had.
        LostWorkError: the process of a measurement was killed again and again.
    """
    started = time.time()
    done = run_jobs(measurements, Store(path.parent / KEPT), processes, listener, fresh=fresh)
    for reason in done.absent.values():
        raise DataUnavailableError(reason)
    for reason in done.lost.values():
        raise LostWorkError(reason)
    found = [done.records[each] for each in measurements]
    made = provenance(command, started)
    made["timing"] |= {
        "jobs": processes,
        "reused": done.reused,
        "cpu_seconds": sum(record["timing"]["cpu_seconds"] for record in found),
    }
    made["measurements"] = [
        {"label": m.label, "module": m.module, "settings": m.settings(), "key": m.key}
        for m in measurements
    ]
    plain = {**made, **assemble([record["found"] for record in found])}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(plain, indent=1, ensure_ascii=False) + "\n")
    return plain


def stale(report: dict[str, Any]) -> list[str]:
    """The measurements of a study's file, those ``carried`` over from an earlier one included, that
    other code, versions or data would make today."""
    return [
        each["label"]
        for each in (*report["measurements"], *report.get("carried", ()))
        if key_of(each["module"], each["settings"]) != each["key"]
    ]
