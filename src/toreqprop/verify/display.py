"""The live display of a verification: one row per running track, or plain lines in a pipe."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from toreqprop.evidence import Listener, Record
from toreqprop.progress_bars import ProgressBars
from toreqprop.verify.records import Job, verdict_of

STYLES = {"PASS": "green", "PARTIAL": "yellow", "FAIL": "bold red"}


class Display(ProgressBars, Listener[Job]):
    """Shows what each running track is at, and every verdict as it falls."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, transient=True)
        self._jobs: dict[str, Job] = {}

    def planned(self, pending: Sequence[Job], reused: int) -> None:
        self._jobs = {job.label: job for job in pending}
        self.begin(len(pending), reused, "experiments")

    def progress(self, label: str, news: str) -> None:
        self.piece(label, _name(self._jobs[label]), None, note=news)

    def repeated(self, jobs: Sequence[Job]) -> None:
        self.say_repeated([_name(job) for job in jobs])

    def finished(self, job: Job, record: Record) -> None:
        self.end_piece(job.label)
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
