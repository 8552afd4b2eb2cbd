"""The live display of a study: one line as each of its measurements is done."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from toreqprop.evidence import Listener, Measurement, Record
from toreqprop.progress_bars import ProgressBars


class StudyDisplay(ProgressBars, Listener[Measurement]):
    """Shows what runs, and what is done."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, transient=True)
        self._names: dict[str, str] = {}

    def planned(self, pending: Sequence[Measurement], reused: int) -> None:
        self._names = {each.label: each.name for each in pending}
        self.begin(len(pending), reused, "measurements")

    def progress(self, label: str, news: str) -> None:
        self.piece(label, self._names[label], None, note=news)

    def repeated(self, jobs: Sequence[Measurement]) -> None:
        self.say_repeated([job.name for job in jobs])

    def finished(self, job: Measurement, record: Record) -> None:
        self.end_piece(job.label)
        what = record.get("not_run") or f"{record['timing']['cpu_seconds']:.1f} s of processor time"
        self.console.print(
            f"[{self.done}/{self.total}] {job.name}: {what}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
