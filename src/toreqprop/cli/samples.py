"""What `train`, `evaluate` and `predict` read: a built-in task, a CSV file or an NPZ file."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split

from toreqprop.errors import InvalidInputError
from toreqprop.sklearn.scaling import Scaling
from toreqprop.tasks import TASKS, Dataset, get
from toreqprop.tasks.files import DATA_VARIABLE
from toreqprop.tasks.tables import SUFFIXES, Table

Part = tuple[np.ndarray, np.ndarray]
"""Raw features (n, d) and their targets (n,)."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Raw samples to train on and to score on, with the scaling of the training part.

    ``scored_on`` names the part kept for scoring: "test", "validation" or, where nothing was held
    out, "training".
    """

    name: str
    train: Part
    validation: Part | None
    test: Part | None
    scaling: Scaling
    regression: bool
    target_name: str
    columns: tuple[str, ...] | None
    sha256: str

    @property
    def scored_on(self) -> str:
        if self.test is not None:
            return "test"
        return "training" if self.validation is None else "validation"

    @property
    def scored(self) -> Part:
        """The part the reported score is measured on."""
        return self.test or self.validation or self.train


def is_task(source: str) -> bool:
    """Whether ``source`` names a task; refuses what is neither a task nor a file."""
    if source in TASKS:
        return True
    if not source.lower().endswith(SUFFIXES):
        raise InvalidInputError(
            f"{source} is neither a task ({', '.join(TASKS)}) nor a CSV or NPZ file."
        )
    return False


def read_task(source: str, seed: int, full: bool, data_dir: Path | None) -> Dataset:
    """A task's data, looked for in ``data_dir`` first."""
    if data_dir is not None:
        if not data_dir.is_dir():
            raise InvalidInputError(
                f"The data folder {data_dir} does not exist; give an existing one."
            )
        os.environ[DATA_VARIABLE] = str(data_dir)
    return get(source).load(seed, full)


def from_task(data: Dataset, fraction: float, seed: int) -> Samples:
    """A task's samples; a fraction of the training part is held out for validation."""
    test = data.standardiser.invert(data.test_x).astype(np.float64), data.test_y
    validation = None
    if fraction > 0:
        data = data.validation(fraction, seed)
        validation = data.standardiser.invert(data.test_x).astype(np.float64), data.test_y
    scaling = Scaling(*(np.asarray(v, np.float64) for v in (data.mean, data.scale)))
    raw = data.standardiser.invert(data.train_x).astype(np.float64)
    digest = hashlib.sha256("".join(sorted(data.checksums.values())).encode()).hexdigest()
    return Samples(
        data.name, (raw, data.train_y), validation, test, scaling, False, "y", None, digest
    )


def from_table(table: Table, regression: bool | None, fraction: float, seed: int) -> Samples:
    """A file's samples; ``regression`` None lets the target decide: a fraction means numbers."""
    target = table.target
    assert target is not None
    numbers = table.numbers
    if regression is None:
        regression = numbers is not None and bool((numbers != np.round(numbers)).any())
    if regression:
        if numbers is None:
            raise InvalidInputError(
                f"{table.name}: the target {table.target_name!r} is text, such as {target[0]!s}; "
                "--regression needs numbers."
            )
        target = numbers
    else:
        _check_classes(table, target, fraction)
    rows = np.arange(len(target))
    train, held = rows, None
    if fraction > 0:
        try:
            train, held = train_test_split(
                rows,
                test_size=fraction,
                random_state=seed,
                stratify=None if regression else target,
            )
        except ValueError as error:
            raise InvalidInputError(
                f"{table.name}: {fraction:g} of {len(rows)} rows cannot be held out ({error}) Use "
                "--validation-fraction 0 to train on all of them."
            ) from None
    features = table.features
    return Samples(
        table.name,
        (features[train], target[train]),
        None if held is None else (features[held], target[held]),
        None,
        Scaling.fit(features[train], None),
        regression,
        table.target_name,
        table.columns,
        table.sha256,
    )


def _check_classes(table: Table, target: np.ndarray, fraction: float) -> None:
    labels, counts = np.unique(target, return_counts=True)
    name = table.target_name
    if len(labels) < 2:
        raise InvalidInputError(f"{table.name}: the target {name!r} has one class, {labels[0]!s}.")
    if len(labels) > max(20, len(target) // 4):
        raise InvalidInputError(
            f"{table.name}: the target {name!r} has {len(labels)} different values in "
            f"{len(target)} rows; if it is a quantity, add --regression."
        )
    if fraction > 0 and counts.min() < 2:
        raise InvalidInputError(
            f"{table.name}: the class {labels[counts.argmin()]!s} has one row, too few to hold "
            "some out; remove it or use --validation-fraction 0."
        )
