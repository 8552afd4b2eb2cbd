"""The rows of the benchmark: every task with the looped model, and some with the layered one."""

from __future__ import annotations

from toreqprop.tasks import TASKS, Task, get

LAYERED = {"mnist-layered": "mnist"}
"""Rows whose EP model is a `HopfieldMLP`, with the task they are about."""

ROWS: tuple[str, ...] = (*TASKS, *LAYERED)

WITH_MORE_DATA = ("mnist", "fashion", "mnist-layered")
"""Rows that also exist with all training images."""


def task_of(row: str) -> Task:
    """The task a row is about. Raises `InvalidInputError` for an unknown one."""
    return get(LAYERED.get(row, row))


def title(row: str, full: bool) -> str:
    """A row's title, with the amount of training data where there is a choice."""
    name = task_of(row).title
    if row in WITH_MORE_DATA:
        name = f"{name} (60k)" if full else f"{name} (5k)"
    return f"{name}, layered" if row in LAYERED else name
