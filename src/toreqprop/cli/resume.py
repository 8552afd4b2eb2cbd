"""Where `toreqprop train` keeps its checkpoint, and whether it may go on from one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toreqprop import checkpoint as checkpoints
from toreqprop.checkpoint import Checkpoint
from toreqprop.cli.predictor import Predictor
from toreqprop.errors import CheckpointError, InvalidInputError


@dataclass
class Output:
    """Where checkpoints go, and what to do with one that is there."""

    folder: Path | None
    resume: bool
    fresh: bool
    _before: str | None = None

    def check(self) -> None:
        """Refuse options that contradict each other, and to overwrite a checkpoint unasked."""
        if self.folder is None:
            if self.resume or self.fresh:
                raise InvalidInputError(
                    "--resume and --fresh need --output, the checkpoint's folder."
                )
            return
        if self.resume and self.fresh:
            raise InvalidInputError("--resume and --fresh cannot be used together.")
        if checkpoints.exists(self.folder) and not (self.resume or self.fresh):
            raise InvalidInputError(
                f"There is a checkpoint in {self.folder}: add --resume to continue it or --fresh "
                "to replace it."
            )
        self._before = checkpoints.describe(self.folder)

    def earlier(self) -> Checkpoint | None:
        """The checkpoint to go on from."""
        if self.folder is None or not self.resume or not checkpoints.exists(self.folder):
            return None
        found = checkpoints.load(self.folder)
        _check_history(found, self.folder)
        return found

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other trainings out of the folder for as long as the block lasts.

        The lock is the system's and on the folder itself: it ends with this process, however that
        ends, and leaves nothing behind.
        """
        if self.folder is None:
            yield
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"{self.folder} cannot be written: {error.strerror}.") from None
        with lock_folder(self.folder):
            self.check()  # a training that was here a moment ago may have left a checkpoint
            yield

    def after_interruption(self) -> str:
        """What is left of a training that was stopped."""
        if self.folder is None:
            return "Nothing was kept: with --output a stopped training can be resumed."
        now = checkpoints.describe(self.folder)
        if now is None:
            return "No epoch was finished, so nothing was kept."
        if now == self._before and self.fresh:
            return f"No epoch was finished; the checkpoint in {self.folder} is as it was."
        return f"Epoch {epoch_of(now)} is saved in {self.folder}: repeat with --resume to continue."


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold a folder, where the system can lock one.

    Raises:
        InvalidInputError: another process holds it.
    """
    try:
        import fcntl

        handle = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):
        yield
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidInputError(
                f"Another training writes into {folder}: wait for its end or choose another "
                "--output."
            ) from None
        except OSError:
            pass  # some network file systems have no locks
        yield
    finally:
        os.close(handle)


def epoch_of(text: str) -> int:
    """The last finished epoch, by the text of a checkpoint's JSON."""
    return json.loads(text)["training"]["epoch"]


_BEFORE = {"patience": 0, "label_smoothing": 0.0}
"""What checkpoints of earlier versions were trained with and do not say."""

HISTORY = ("epoch", "loss", "free_steps", "nudged_steps", "validation")
"""What every row of a checkpoint's history has at least."""


def _check_history(found: Checkpoint, folder: Path) -> None:
    """Refuse to go on from a checkpoint without its training and one row for each epoch of it."""
    rows = found.about.get("history")
    if (
        found.training is None
        or not isinstance(rows, list)
        or not all(isinstance(row, dict) and set(HISTORY) <= set(row) for row in rows)
        or [row["epoch"] for row in rows] != list(range(1, found.training.epoch + 1))
    ):
        raise CheckpointError(
            f"The checkpoint in {folder} does not say what its epochs measured: start over with "
            "--fresh."
        )


def check_same(
    earlier: Checkpoint, predictor: Predictor, plan: dict[str, Any], folder: Path | None
) -> None:
    """Refuse to go on with another model, other data or other settings than training began with."""
    before, now = (checkpoints.network_name(m) for m in (earlier.model, predictor.model))
    if before != now:
        raise CheckpointError(f"The checkpoint in {folder} holds a {before} model, not {now}.")
    old = {**earlier.about, "model": checkpoints.encode(earlier.model.config())}  # type: ignore[operator]
    new = {**plan, "model": checkpoints.encode(predictor.model.config())}  # type: ignore[operator]
    for part, settings in new.items():
        for key, value in settings.items() if isinstance(settings, dict) else [(part, settings)]:
            known = old.get(part, {} if isinstance(settings, dict) else _BEFORE.get(part))
            stored = known.get(key) if isinstance(known, dict) else known
            longer = (
                key == "epochs"
                and plan["training"]["schedule"] == "constant"
                and value >= (earlier.training.epoch if earlier.training else 0)
            )
            if stored != value and not longer:
                raise CheckpointError(
                    f"The checkpoint in {folder} was begun with {key} = {stored}, not {value}: "
                    "continue with the same settings, or start over with --fresh."
                )
