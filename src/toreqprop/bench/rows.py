"""The rows of the benchmark: every task with the looped model, and some with variants of it."""

from __future__ import annotations

from toreqprop.tasks import TASKS, Task, get

LAYERED = {"mnist-layered": "mnist"}
"""Rows whose EP model is a `HopfieldMLP`, with the task they are about."""

FAST = {"digits-fast": "digits", "mnist-fast": "mnist"}
"""Rows whose EP model has sizes, radius and gain of the speed table's first two rows."""

FAST_RADIUS = 0.05
"""With this radius, a phase takes one or two steps."""

ROWS: tuple[str, ...] = (
    *(name for name, task in TASKS.items() if task.standard),
    *LAYERED,
    *FAST,
)

WITH_MORE_DATA = ("mnist", "fashion", "mnist-layered")
"""Rows that also exist with all training images."""


def base(row: str) -> str:
    """The row with the same task, baseline and training, and the plain looped model."""
    return (LAYERED | FAST).get(row, row)


def task_of(row: str) -> Task:
    """The task a row is about. Raises `InvalidInputError` for an unknown one."""
    return get(base(row))


def title(row: str, full: bool) -> str:
    """A row's title, with the amount of training data where there is a choice."""
    name = task_of(row).title
    if base(row) in WITH_MORE_DATA:
        name = f"{name} (60k)" if full else f"{name} (5k)"
    kind = ", layered" if row in LAYERED else ", fast" if row in FAST else ""
    return name + kind
