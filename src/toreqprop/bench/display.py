"""The live display of a benchmark: one row per running run, or plain lines without a terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console

from toreqprop.bench.run import Progress, Run
from toreqprop.evidence import Listener, Record
from toreqprop.progress_bars import ProgressBars


class Display(ProgressBars, Listener[Run]):
    """Shows row, arm, seed, epoch, accuracy and the time left, estimated from work done."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._part: dict[str, float] = {}
        self._runs: dict[str, Run] = {}
        self._started = time.monotonic()

    def planned(self, pending: Sequence[Run], reused: int) -> None:
        self._started = time.monotonic()
        self._runs = {run.label: run for run in pending}
        self._part = dict.fromkeys(self._runs, 0.0)
        self.begin(len(pending), reused, "runs")

    def repeated(self, jobs: Sequence[Run]) -> None:
        self.say_repeated([_describe(run) for run in jobs])

    def progress(self, label: str, news: Progress) -> None:
        run = self._runs[label]
        self._part[label] = news.epoch / run.chosen.epochs
        self.piece(label, _describe(run), run.chosen.epochs, completed=news.epoch)
        self.note(self._time_left())

    def finished(self, job: Run, record: Record) -> None:
        self._part[job.label] = 1.0
        self.end_piece(job.label)
        self.note(self._time_left())
        said = (
            f"not finished. {record['not_run']}"
            if "not_run" in record
            else (
                f"{100 * record['accuracy']:.2f} % after {job.chosen.epochs} epochs, "
                f"{record['timing']['training_seconds']:.1f} s of training"
            )
        )
        self.console.print(
            f"[{self.done}/{self.total}] {_describe(job)}: {said}; {self._time_left()}",
            style="red" if "not_run" in record else None,
            markup=False,
            highlight=False,
        )

    def _time_left(self) -> str:
        done = sum(self._part.values())
        if done == 0:
            return "time left unknown"
        left = (time.monotonic() - self._started) * (len(self._part) - done) / done
        return f"about {left // 60:.0f} min {left % 60:02.0f} s left"


def _describe(run: Run) -> str:
    varied = None if run.variant is None else "{} = {:g}".format(*run.variant)
    special = run.control or varied
    return f"{run.task}{f' ({special})' if special else ''}, {run.model}, seed {run.seed}"
