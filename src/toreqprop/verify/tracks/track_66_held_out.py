"""Track 66: nothing a network is tested on is in what it learns from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from toreqprop.models import LoopedMLP
from toreqprop.tasks import Dataset, get
from toreqprop.tasks import sequences as drawn_sequences
from toreqprop.training import TrainingConfig, fit
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Column, Measurements, Table
from toreqprop.verify.mutations import plantable
from toreqprop.verify.networks import split
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, at_least, at_most

VALIDATION = 0.2
NEVER = {"acrobot": {1}}
"""Labels that a task has a name for and its source never gives: the expert of acrobot does not
coast."""


def tasks_of(level: Level) -> tuple[str, ...]:
    more = ("digits", "cartpole", "acrobot", "mnist", "fashion")
    return level.pick(("digits", "cartpole"), more, more)


@dataclass(frozen=True)
class Looked:
    """What was found in one task's data of one seed."""

    task: str
    seed: int
    train: int
    test: int
    shared: int
    validated: int
    episodes: int
    mean: float
    deviation: float
    labels: int

    @property
    def row(self) -> tuple[Any, ...]:
        return (
            self.task, self.seed, self.train, self.test, self.shared, self.validated,
            self.episodes, self.mean, self.deviation, self.labels,
        )  # fmt: skip


@plantable
def run(context: Context) -> Measurements:
    looked, unlike, again, missing, touched = [], [], [], [], 0
    for task in tasks_of(context.level):
        kept: dict[int, Dataset] = {}
        for seed in context.seeds:
            context.report(f"{task}, seed {seed}")
            kept[seed] = get(task).load(seed, False)
            looked.append(_look(task, seed, kept[seed]))
            missing += _classes(task, kept[seed])
        first = kept[context.seed]
        context.checksums.update({f"{task}: {n}": d for n, d in first.checksums.items()})
        again.append(_same(first, get(task).load(context.seed, False)))
        other = get(task).load(context.seeds[-1] + 1, False)
        unlike.append(not np.array_equal(first.train_x, other.train_x))
        if task == "digits":
            touched = _test_rows_read(first)
    drawn = [_sequences(task, seed) for seed in context.seeds for task in ("reversal", "sorting")]
    return Measurements(
        {
            "sets": len(looked),
            "shared": sum(found.shared for found in looked),
            "validated": sum(found.validated for found in looked),
            "episodes": sum(found.episodes for found in looked),
            "mean": max(found.mean for found in looked),
            "deviation": max(found.deviation for found in looked),
            "labels": sum(found.labels for found in looked),
            "least_test": min(found.test / (found.train + found.test) for found in looked),
            "missing_classes": sum(missing),
            "repeats": all(again),
            "seeds_differ": all(unlike),
            "sequences_shared": sum(shared for shared, _ in drawn),
            "sequence_targets": sum(wrong for _, wrong in drawn),
            "read_in_training": touched,
        },
        tables=(
            Table(
                "Rows that occur twice are counted by their bytes; statistics are those of the "
                "standardised training rows, where a deviation is above its floor",
                (
                    Column("task"),
                    Column("seed", "d"),
                    Column("training rows", "d"),
                    Column("test rows", "d"),
                    Column("test rows in training", "d"),
                    Column("validation rows in what is left", "d"),
                    Column("episodes in both", "d"),
                    Column("largest mean", ".1e"),
                    Column("largest deviation from 1", ".1e"),
                    Column("labels unlike the source's", "d"),
                ),
                tuple(found.row for found in looked),
            ),
        ),
    )


def _look(task: str, seed: int, data: Dataset) -> Looked:
    inner = data.validation(VALIDATION, seed)
    raw = data.standardiser.invert
    known = _rows(raw(data.test_x))
    floored = np.broadcast_to(data.scale, data.train_x.shape[1:]) > 1.001 * data.standardiser.floor
    per_feature = data.mean.ndim == 1
    x = data.train_x.astype(np.float64)
    if per_feature:
        means, spread = x.mean(0), x.std(0)[floored]
    else:
        means, spread = np.array([x.mean()]), np.array([x.std()])
    episodes = 0
    if data.train_episode is not None and data.test_episode is not None:
        episodes = _shared_episodes(data)
    return Looked(
        task,
        seed,
        len(data.train_y),
        len(data.test_y),
        sum(row in known for row in _rows(raw(data.train_x))),
        len(_rows(inner.standardiser.invert(inner.test_x))
            & _rows(inner.standardiser.invert(inner.train_x))) if task == "digits" else 0,
        episodes,
        float(np.abs(means).max()),
        float(np.abs(spread - 1).max()),
        _unlike_source(data) if task == "digits" else 0,
    )  # fmt: skip


def _classes(task: str, data: Dataset) -> list[int]:
    """In training and in test rows: classes without a row, and labels that should not be there."""
    wanted = set(range(data.classes)) - NEVER.get(task, set())
    return [len(wanted ^ set(np.unique(part).tolist())) for part in (data.train_y, data.test_y)]


def _rows(raw: np.ndarray) -> set[bytes]:
    """Rows as bytes, rounded where standardising there and back rounds."""
    return {row.tobytes() for row in np.round(raw.astype(np.float64), 4) + 0.0}


def _shared_episodes(data: Dataset) -> int:
    """Episodes are numbered within their part: only rows can say whether they are the same."""
    assert data.train_episode is not None
    known = _rows(data.standardiser.invert(data.test_x))
    rows = np.round(data.standardiser.invert(data.train_x).astype(np.float64), 4) + 0.0
    hit = np.array([row.tobytes() in known for row in rows])
    return len(np.unique(data.train_episode[hit])) if hit.any() else 0


def _unlike_source(data: Dataset) -> int:
    """Labels that are not those scikit-learn has for the same scan."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    known = {
        row.tobytes(): int(y) for row, y in zip(np.round(pixels, 3) + 0.0, labels, strict=True)
    }
    wrong = 0
    for x, y in ((data.train_x, data.train_y), (data.test_x, data.test_y)):
        rows = np.round(data.standardiser.invert(x).astype(np.float64)) + 0.0
        wrong += sum(known.get(r.tobytes()) != int(t) for r, t in zip(rows, y, strict=True))
    return wrong


def _same(one: Dataset, two: Dataset) -> bool:
    names = ("train_x", "train_y", "test_x", "test_y")
    return all(np.array_equal(getattr(one, n), getattr(two, n)) for n in names)


def _test_rows_read(data: Dataset) -> int:
    """How many distinct rows a network is given while it trains that are no training rows."""
    tensors = split(data)
    torch.manual_seed(0)
    model = LoopedMLP(data.features, 8, data.classes, on_failure="ignore")
    allowed = {row.tobytes() for row in data.train_x}
    seen: set[bytes] = set()

    def watch(module: torch.nn.Module, given: tuple[torch.Tensor, ...]) -> None:
        seen.update(row.tobytes() for row in given[0].numpy())

    handle = model.register_forward_pre_hook(watch)
    fit(model, tensors.x, tensors.y, TrainingConfig(epochs=1, seed=0))
    handle.remove()
    return len(seen - allowed) + len(allowed - seen)


TARGETS: dict[str, Callable[[list[int]], list[int]]] = {
    "reversal": lambda row: row[::-1],
    "sorting": sorted,
}


def _sequences(task: str, seed: int) -> tuple[int, int]:
    """Held-out sequences among those to train on, and targets that are wrong."""
    data = drawn_sequences.sequences(
        task, length=4, symbols=6, train=2000, validation=50, test=200, seed=seed
    )
    train, test, validation = (
        {tuple(row) for row in part.tolist()} for part in (data.x, data.test_x, data.validation_x)
    )
    parts = ((data.x, data.y), (data.test_x, data.test_y), (data.validation_x, data.validation_y))
    wrong = sum(
        TARGETS[task](list(row)) != list(target)
        for x, y in parts
        for row, target in zip(x.tolist(), y.tolist(), strict=True)
    )
    return len(train & test) + len(train & validation) + len(test & validation), wrong


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        at_most("shared", 0, "test rows among the training rows"),
        at_most("validated", 0, "validation rows among the rows that are left to train on"),
        at_most("episodes", 0, "episodes of which rows are on both sides"),
        # Standardised in float32: sums of a thousand rows of size one.
        at_most("mean", 1e-4, "largest mean of a standardised training feature"),
        at_most("deviation", 1e-3, "deviation of its standard deviation from one"),
        at_most("labels", 0, "labels unlike the source's"),
        at_least("least_test", 0.15, "smallest share of rows that are held out"),
        # Every label that the source gives, and no other: what no expert does has no row.
        at_most("missing_classes", 0, "classes without a training or a test row, or out of place"),
        at_least("repeats", 1, "whether the same seed gives the same data"),
        at_least("seeds_differ", 1, "whether other seeds give other training rows"),
        at_most("sequences_shared", 0, "held-out sequences among those trained on"),
        at_most("sequence_targets", 0, "sequences whose target is not what the task says"),
        at_most(
            "read_in_training", 0, "rows a training reads that it should not, or does not read"
        ),
    )


TRACK = Track(
    number=66,
    title="Held-Out Data",
    claim="No test row is among the training rows of any task and seed, nor in their statistics, "
    "and training reads every training row and no other.",
    experiment="Compare rows by their bytes, labels with their source and statistics with those of "
    "the training rows alone; watch what a network is given while it trains; the same for "
    "sequences.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("one test row in training", "one training row is replaced by one of the test set"),
        Sabotage("scaled by all rows", "features are standardised with the test rows' statistics"),
    ),
    statements=(
        "In {sets} data sets {shared} test rows were among the training rows, and {labels} labels "
        "differed from their source.",
        "Standardised training features have means of at most {mean:.1e}; training read "
        "{read_in_training} rows too many or too few.",
    ),
    cost=8,
)
