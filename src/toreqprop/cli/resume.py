"""Where `toreqprop train` keeps its checkpoint, and whether it may go on from one."""

from __future__ import annotations

import json
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
            raise InvalidInputError("--resume and --fresh exclude each other.")
        if checkpoints.exists(self.folder) and not (self.resume or self.fresh):
            raise InvalidInputError(
                f"There is a checkpoint in {self.folder}: add --resume to go on from it or --fresh "
                "to replace it."
            )
        self._before = checkpoints.describe(self.folder)

    def earlier(self) -> Checkpoint | None:
        """The checkpoint to go on from."""
        if self.folder is None or not self.resume or not checkpoints.exists(self.folder):
            return None
        return checkpoints.load(self.folder)

    def after_interruption(self) -> str:
        """What is left of a training that was stopped."""
        if self.folder is None:
            return "Nothing was kept: with --output a stopped training can go on."
        now = checkpoints.describe(self.folder)
        if now is None:
            return "No epoch was finished, so nothing was kept."
        if now == self._before and self.fresh:
            return f"No epoch was finished; the checkpoint in {self.folder} is as it was."
        return f"Epoch {epoch_of(now)} is kept in {self.folder}: repeat with --resume to go on."


def epoch_of(text: str) -> int:
    """The last finished epoch, by the text of a checkpoint's JSON."""
    return json.loads(text)["training"]["epoch"]


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
            known = old.get(part, {})
            stored = known.get(key) if isinstance(known, dict) else known
            longer = (
                key == "epochs"
                and plan["training"]["schedule"] == "constant"
                and value >= (earlier.training.epoch if earlier.training else 0)
            )
            if stored != value and not longer:
                raise CheckpointError(
                    f"The checkpoint in {folder} was begun with {key} = {stored}, not {value}: go "
                    "on with the same settings, or start anew with --fresh."
                )
