"""The live display of a benchmark: one row per running run, or plain lines without a terminal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from toreqprop.bench.run import Run
from toreqprop.bench.runner import Listener
from toreqprop.bench.runner import Progress as EpochEvent
from toreqprop.progress_bars import ProgressBars


class Display(ProgressBars, Listener):
    """Shows task, model, seed, epoch, accuracy and the time left, estimated from work done."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._work: dict[str, float] = {}
        self._part: dict[str, float] = {}
        self._runs: dict[str, Run] = {}
        self._started = time.monotonic()

    def planned(self, pending: Sequence[Run], reused: int) -> None:
        self._started = time.monotonic()
        self._runs = {run.label: run for run in pending}
        # EP's epochs take longer; the weight only has to be right for an estimate.
        self._work = {
            run.label: run.settings.epochs * (4.0 if run.model == "ep" else 1.0) for run in pending
        }
        self._part = dict.fromkeys(self._work, 0.0)
        self.begin(len(pending), reused, "runs")

    def skipped(self, task: str, reason: str) -> None:
        self.console.print(f"{task}: not run. {reason}", style="yellow", markup=False)

    def repeated(self, runs: Sequence[Run]) -> None:
        self.say_repeated([_describe(run) for run in runs])

    def lost(self, run: Run, reason: str) -> None:
        self.console.print(f"{_describe(run)}: not finished. {reason}", style="red", markup=False)

    def progress(self, event: EpochEvent) -> None:
        run = self._runs[event.label]
        self._part[event.label] = event.epoch / run.settings.epochs
        self.piece(
            event.label,
            _describe(run),
            run.settings.epochs,
            completed=event.epoch,
            note=f"accuracy {100 * event.accuracy:.2f} %",
        )
        self.note(self._time_left())

    def finished(self, run: Run, measurement: dict[str, Any]) -> None:
        self._part[run.label] = 1.0
        self.end_piece(run.label)
        self.note(self._time_left())
        self.console.print(
            f"[{self.done}/{self.total}] {_describe(run)}: "
            f"{100 * measurement['accuracy']:.2f} % after {run.settings.epochs} epochs, "
            f"{measurement['timing']['training_seconds']:.1f} s of training; {self._time_left()}",
            markup=False,
            highlight=False,
        )

    def _time_left(self) -> str:
        total = sum(self._work.values())
        done = sum(self._work[label] * part for label, part in self._part.items())
        if done == 0:
            return "time left unknown"
        left = (time.monotonic() - self._started) * (total - done) / done
        return f"about {left // 60:.0f} min {left % 60:02.0f} s left"


def _describe(run: Run) -> str:
    control = f" ({run.control})" if run.control else ""
    return f"{run.task}{control}, {run.model}, seed {run.seed}"
