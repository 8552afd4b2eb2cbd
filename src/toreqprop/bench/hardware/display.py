"""The live display of the studies of chips: what ran, what it found, and how much is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from rich.console import Console

from toreqprop.evidence import Job, Listener, Record
from toreqprop.progress_bars import ProgressBars

J = TypeVar("J", bound=Job)


class Display(ProgressBars, Listener[J]):
    """A bar for all of it, and a line for every job; ``say`` puts a record in a few words."""

    def __init__(self, console: Console, what: str, say: Callable[[Record], str]) -> None:
        super().__init__(console, transient=True)
        self._what, self._say = what, say

    def planned(self, pending: Sequence[J], reused: int) -> None:
        self.done = 0
        self.begin(len(pending), reused, self._what)

    def repeated(self, jobs: Sequence[J]) -> None:
        self.say_repeated([job.label for job in jobs])

    def finished(self, job: J, record: Record) -> None:
        self.end_piece(job.label)
        lost = "not_run" in record
        said = f"not finished. {record['not_run']}" if lost else self._say(record)
        self.console.print(
            f"[{self.done}/{self.total}] {job.label}: {said}",
            style="red" if lost else None,
            markup=False,
            highlight=False,
        )
