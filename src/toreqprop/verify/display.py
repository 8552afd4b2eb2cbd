"""The live display of a verification: one row per running track, or plain lines in a pipe."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from toreqprop.verify.records import Job, Record, verdict_of
from toreqprop.verify.runner import Listener

STYLES = {"PASS": "green", "PARTIAL": "yellow", "FAIL": "bold red"}


class Display(Listener):
    """Shows what each running track is at, and every verdict as it falls."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.total = self.done = 0
        self._jobs: dict[str, Job] = {}
        self._rows: dict[str, TaskID] = {}
        self._started = time.monotonic()
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )

    def __enter__(self) -> Display:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def planned(self, pending: Sequence[Job], reused: int) -> None:
        self.total = len(pending)
        self._jobs = {job.label: job for job in pending}
        taken = f", {reused} taken up from before" if reused else ""
        self.console.print(f"{len(pending)} experiments to do{taken}.", highlight=False)
        self._all = self._bars.add_task("all experiments", total=max(1, self.total), note="")

    def progress(self, label: str, message: str) -> None:
        if label not in self._rows:
            self._rows[label] = self._bars.add_task(_name(self._jobs[label]), total=None, note="")
        self._bars.update(self._rows[label], note=message)

    def finished(self, job: Job, record: Record) -> None:
        self.done += 1
        if job.label in self._rows:
            self._bars.remove_task(self._rows.pop(job.label))
        self._bars.update(self._all, completed=self.done)
        verdict = verdict_of(job.track, record)
        status = verdict.status.value
        reason = f": {verdict.reason}" if verdict.reason else ""
        self.console.print(
            f"[{self.done}/{self.total}] {_name(job)}: {status}, score {verdict.score:.0f}, "
            f"{record['seconds']:.1f} s{reason}",
            style=_style(job, status),
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def _style(job: Job, status: str) -> str:
    if job.sabotage is not None:  # here a failure is what is wanted
        return "green" if status == "FAIL" else "bold red"
    return STYLES.get(status, "")


def _name(job: Job) -> str:
    fault = f" [sabotage: {job.sabotage}]" if job.sabotage else ""
    return f"Track {job.track.number} {job.track.title}{fault}"
