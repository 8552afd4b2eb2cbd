"""Faults of the data."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

from toreqprop.tasks import Dataset, registry, sequences
from toreqprop.tasks.dataset import Standardiser
from toreqprop.verify.mutations.mutation import Mutation, Plant, swapped

AREA = "tasks"


def _data(change: Callable[[Dataset], Dataset], *tasks: str) -> Plant:
    """The data of some tasks, all unless told, changed after loading."""

    def plant() -> AbstractContextManager[Any]:
        def spoiled(task: Any) -> Any:
            return replace(task, load=lambda seed, full=False: change(task.load(seed, full)))

        chosen = tasks or tuple(registry.TASKS)
        return patch.dict(registry.TASKS, {n: spoiled(registry.TASKS[n]) for n in chosen})

    return plant


def _one_row(data: Dataset) -> Dataset:
    x, y = data.train_x.copy(), data.train_y.copy()
    x[7], y[7] = data.test_x[3], data.test_y[3]
    return replace(data, train_x=x, train_y=y)


def _scaled_by_all(data: Dataset) -> Dataset:
    raw = data.standardiser.invert(data.train_x), data.standardiser.invert(data.test_x)
    fitted = data.standardiser.refit(np.concatenate(raw))
    return replace(data, train_x=fitted(raw[0]), test_x=fitted(raw[1]), standardiser=fitted)


def _mislabelled(data: Dataset) -> Dataset:
    y = data.train_y.copy()
    y[:2] = (y[:2] + 1) % data.classes
    return replace(data, train_y=y)


def _one_seed() -> AbstractContextManager[Any]:
    digits = registry.TASKS["digits"]

    def load(seed: int, full: bool = False) -> Dataset:
        return digits.load(0, full)

    return patch.dict(registry.TASKS, {"digits": replace(digits, load=load)})


def _leaky(right: Any) -> Any:
    def validation(self: Dataset, fraction: float, seed: int) -> Dataset:
        found = right(self, fraction, seed)
        x, y = found.train_x.copy(), found.train_y.copy()
        x[0], y[0] = found.test_x[0], found.test_y[0]
        return replace(found, train_x=x, train_y=y)

    return validation


def _known(right: Any) -> Any:
    def drawn(task: str, **options: Any) -> Any:
        found = right(task, **options)
        x, y = found.x.clone(), found.y.clone()
        x[0], y[0] = found.test_x[0], found.test_y[0]
        return replace(found, x=x, y=y)

    return drawn


def _backwards() -> AbstractContextManager[Any]:
    return patch.dict(
        sequences.SEQUENCE_TASKS, {"sorting": lambda x: x.sort(1, descending=True).values}
    )


def _no_floor(right: Any) -> Any:
    """Statistics of the first half of the rows alone."""

    def fit(raw: np.ndarray, *, per_feature: bool, floor: float) -> Standardiser:
        return right.__func__(
            Standardiser, raw[: len(raw) // 2], per_feature=per_feature, floor=floor
        )

    return staticmethod(fit)


MUTATIONS = (
    Mutation(
        "one test row in training", AREA, "one training row is replaced by one of the test set", 66,
        _data(_one_row),
    ),
    Mutation(
        "scaled by all rows", AREA, "features are standardised with the test rows' statistics", 66,
        _data(_scaled_by_all),
    ),
    Mutation(
        "scaled by half of the rows", AREA, "statistics are those of the first half", 66,
        swapped(Standardiser, "fit", _no_floor),
    ),
    Mutation("two labels off by one", AREA, "of the training rows", 66, _data(_mislabelled)),
    Mutation("seeds ignored", AREA, "digits are split alike for every seed", 66, _one_seed),
    Mutation(
        "one validation row in training", AREA, "what settings are chosen by was learned from", 66,
        swapped(Dataset, "validation", _leaky),
    ),
    Mutation(
        "one test sequence in training", AREA, "the first training sequence is a test sequence", 66,
        swapped(sequences, "sequences", _known),
    ),
    Mutation("sorted backwards", AREA, "the targets of sorting", 66, _backwards),
)  # fmt: skip
