"""What a running training shows: a progress bar, and TensorBoard where it is installed."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from toreqprop.errors import InvalidInputError


class TrainingLog:
    """A context in which each epoch's figures are shown and, if asked for, logged."""

    def __init__(
        self,
        title: str,
        epochs: int,
        done: int,
        tensorboard: Path | None,
        *,
        shown: bool = True,
    ) -> None:
        if tensorboard is not None and find_spec("tensorboard") is None:
            raise InvalidInputError(
                'TensorBoard is not installed: run `pip install "toreqprop[tensorboard]"`.'
            )
        self._title = title
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not shown,
        )
        self._bar = self._progress.add_task(title, total=epochs, completed=done)
        self._writer: Any = None
        if tensorboard is not None:
            from torch.utils.tensorboard import SummaryWriter

            # Points a killed run logged after its last checkpoint are dropped.
            self._writer = SummaryWriter(str(tensorboard), purge_step=done + 1)

    def __enter__(self) -> TrainingLog:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()
        if self._writer is not None:
            self._writer.close()

    def say(self, sentence: str) -> None:
        """A line above the progress bar."""
        self._progress.console.print(sentence, highlight=False, soft_wrap=True)

    def epoch(self, row: dict[str, Any]) -> None:
        """Show and log one epoch's figures.

        Raises:
            InvalidInputError: the loss is not finite.
        """
        if not math.isfinite(row["loss"]):
            raise InvalidInputError(
                f"The loss is {row['loss']} in epoch {row['epoch']}: lower --learning-rate."
            )
        self._progress.update(
            self._bar,
            completed=row["epoch"],
            description=f"{self._title}: epoch {row['epoch']}, loss {row['loss']:.4f}",
        )
        if self._writer is not None:
            for name, value in row.items():
                if name != "epoch" and isinstance(value, int | float):
                    self._writer.add_scalar(name, value, row["epoch"])
            self._writer.flush()
