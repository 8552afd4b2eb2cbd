"""The networks that the tracks train, all in the same way, and how well they do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from toreqprop.certificate import Certificate
from toreqprop.models import BackpropMLP, LoopedMLP
from toreqprop.tasks import Dataset
from toreqprop.training import History, TrainingConfig, fit, predict
from toreqprop.verify.measurements import Accuracy, Column, Table
from toreqprop.verify.track import Context


@dataclass(frozen=True)
class Split:
    """A data set as tensors."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    features: int
    classes: int
    chance: float


def split(data: Dataset, *, shuffle_labels_by: int | None = None) -> Split:
    """Tensors of a data set; with a seed, its training labels are shuffled: nothing to learn."""
    y = torch.from_numpy(data.train_y)
    if shuffle_labels_by is not None:
        generator = torch.Generator().manual_seed(shuffle_labels_by)
        y = y[torch.randperm(len(y), generator=generator)]
    return Split(
        torch.from_numpy(data.train_x),
        y,
        torch.from_numpy(data.test_x),
        torch.from_numpy(data.test_y),
        data.features,
        data.classes,
        data.chance,
    )


def load(context: Context, task: str, seed: int, full: bool = False) -> Split:
    """A task's data; the sabotage "shuffled labels" takes effect here, for every track alike."""
    shuffled = seed if context.sabotaged("shuffled labels") else None
    return split(context.data(task, seed, full), shuffle_labels_by=shuffled)


@dataclass(frozen=True)
class Trained:
    """A trained network, what its training measured, and its answers on the test data."""

    model: nn.Module
    history: History
    correct: int
    total: int
    chance: float

    def accuracy(self, *, contrast: bool = False) -> Accuracy:
        return Accuracy((self.correct,), (self.total,), self.chance, contrast)

    @property
    def percent(self) -> float:
        return 100 * self.correct / self.total


def looped(data: Split, hidden: int, seed: int, **options: Any) -> LoopedMLP:
    """An untrained LoopedMLP; centred EP and the spectral bound unless told otherwise."""
    torch.manual_seed(seed)
    return LoopedMLP(data.features, hidden, data.classes, on_failure="ignore", **options)


def baseline(data: Split, hidden: int, seed: int) -> BackpropMLP:
    """An untrained network of as many weights for backpropagation."""
    torch.manual_seed(seed)
    return BackpropMLP(data.features, hidden, data.classes)


def train(
    model: nn.Module,
    data: Split,
    config: TrainingConfig,
    *,
    on_step: Callable[[nn.Module], None] | None = None,
) -> Trained:
    """Fit and test."""
    history = fit(model, data.x, data.y, config, on_step=on_step)
    answers = predict(model, data.test_x)
    correct = int((answers == data.test_y).sum())
    return Trained(model, history, correct, len(data.test_y), data.chance)


def certificate_table(title: str, found: Sequence[tuple[int, str, Certificate]]) -> Table:
    """Cosine and norm of every tensor of certificates, each with its seed and network."""
    columns = (
        Column("seed", "d"), Column("network"), Column("tensor"),
        Column("signed cosine", "+.6f"), Column("norm ratio", ".4f"),
    )  # fmt: skip
    rows = tuple(
        (seed, name, t.name, t.cosine, t.norm_ratio) for seed, name, c in found for t in c.tensors
    )
    return Table(title, columns, rows)
