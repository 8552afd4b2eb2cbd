"""The progress bars that long work in several processes shows."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from typing_extensions import Self


class ProgressBars:
    """A context with a bar for all the work and one for each piece that runs, with a note each.

    Without a terminal nothing is drawn.
    """

    def __init__(self, console: Console, *, transient: bool = False) -> None:
        self.console = console
        self.total = 0
        self.done = 0
        self._pieces: dict[str, TaskID] = {}
        self._ended: set[str] = set()
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=transient,
        )

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def begin(self, pieces: int, reused: int, what: str) -> None:
        """Say how much there is to do."""
        self.total = pieces
        taken = f", {reused} resumed" if reused else ""
        self.console.print(f"{pieces} {what} to do{taken}.", highlight=False)
        self._all = self._bars.add_task(f"all {what}", total=max(1, pieces), note="")

    def piece(self, label: str, name: str, total: int | None, **state: Any) -> None:
        """Show where a running piece is; news that come after its end are not shown."""
        if label in self._ended:
            return
        if label not in self._pieces:
            self._pieces[label] = self._bars.add_task(name, total=total, note="")
        self._bars.update(self._pieces[label], **state)

    def end_piece(self, label: str) -> None:
        """A piece is done."""
        self.done += 1
        self._ended.add(label)
        if label in self._pieces:
            self._bars.remove_task(self._pieces.pop(label))
        self._bars.update(self._all, completed=self.done)

    def say_repeated(self, names: Sequence[str]) -> None:
        """Pieces that were under way when a process was killed are done again."""
        self.console.print(
            f"A process was killed; repeated, one at a time: {'; '.join(names)}.",
            style="yellow",
            markup=False,
            highlight=False,
        )

    def note(self, text: str) -> None:
        """What is said beside the bar of all the work."""
        self._bars.update(self._all, note=text)
