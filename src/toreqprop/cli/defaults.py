"""What `toreqprop train` uses where its user says nothing: one set for tasks, one for tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from toreqprop import checks
from toreqprop.errors import InvalidInputError
from toreqprop.table_defaults import CLASSES, NUMBERS


@dataclass(frozen=True)
class Choice:
    """Settings of a training; None leaves a model its own.

    ``patience`` is how many epochs without a lower validation loss end it; zero never does.
    """

    hidden: int = 128
    epochs: int = 30
    batch_size: int = 64
    learning_rate: float | None = None
    weight_decay: float = 0.0
    patience: int = 0
    beta: float | None = None
    radius: float | None = None
    bound: str | None = None
    schedule: str = "constant"
    label_smoothing: float = 0.0


def choose(
    asked: dict[str, Any], model: str, rows: int, *, table: bool, numbers: bool, held_out: bool
) -> Choice:
    """What was asked for, and the defaults of a task or of a table of so many rows for the rest.

    A training whose number of epochs was asked for does all of them, at a constant rate unless
    told, so that a longer one can go on from it.
    """
    stops = held_out and asked["epochs"] is None
    usual = _of_table(model, rows, numbers, stops) if table else Choice()
    if asked["epochs"] is not None:
        usual = replace(usual, schedule="constant")
    found = replace(usual, **{name: value for name, value in asked.items() if value is not None})
    checks.whole_number("patience", found.patience, 0)
    if found.patience and not held_out:
        raise InvalidInputError(
            "--patience needs rows that are held out: add --validation-fraction 0.2."
        )
    return found


def exhausted(history: list[dict[str, Any]], patience: int) -> bool:
    """Whether the last ``patience`` epochs brought no lower validation loss; zero never ends."""
    found = [row.get("validation_loss") for row in history]
    losses = [value for value in found if isinstance(value, float)]
    if not patience or len(losses) <= patience:
        return False
    return min(losses[-patience:]) >= min(losses[:-patience])


def _of_table(model: str, rows: int, numbers: bool, stops: bool) -> Choice:
    shared = NUMBERS if numbers else CLASSES
    size = min(shared.batch_size, rows)
    settles = model == "looped"  # the model they were chosen for
    return Choice(
        shared.hidden,
        shared.epochs,
        size,
        shared.learning_rate,
        shared.alpha / size,
        shared.patience if stops else 0,
        shared.beta if settles else None,
        shared.radius if settles else None,
        shared.bound if settles else None,
        shared.schedule,
        shared.label_smoothing,
    )
