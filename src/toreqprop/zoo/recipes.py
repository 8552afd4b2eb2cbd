"""How each network of the zoo is made: its data, its layers, its training. Small by intent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.energies import AveragePooling, MaxPooling
from toreqprop.models import (
    EquilibriumModel,
    EquilibriumTransformer,
    HopfieldConvNet,
    HopfieldMLP,
    LoopedMLP,
    ResistiveMLP,
)
from toreqprop.tasks import get
from toreqprop.tasks.sequences import sequences
from toreqprop.training import Loss, TrainingConfig

LENGTH, SYMBOLS = 6, 8
"""Of the sequences that are reversed."""


@dataclass(frozen=True)
class Data:
    """Training data, and test data that decides nothing: inputs as the network takes them."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    chance: float


def _pictures(task: str, image: bool = False) -> Data:
    found = get(task).load(0, False)
    x, test_x = torch.from_numpy(found.train_x), torch.from_numpy(found.test_x)
    if not image:
        x, test_x = x.flatten(1), test_x.flatten(1)
    y, test_y = torch.from_numpy(found.train_y), torch.from_numpy(found.test_y)
    return Data(x, y, test_x, test_y, found.chance)


def _reversed() -> Data:
    found = sequences(
        "reversal", length=LENGTH, symbols=SYMBOLS, train=8000, validation=1000, test=1000, seed=0
    )
    return Data(found.x, found.y, found.test_x, found.test_y, found.chance)


def token_loss(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy of every position."""
    return F.cross_entropy(output.mT, target)


@dataclass(frozen=True)
class Recipe:
    """A network of the zoo: what it is, its data, its layers, its training."""

    title: str
    data: Callable[[], Data]
    build: Callable[[], EquilibriumModel]
    training: TrainingConfig
    loss: Loss = F.cross_entropy


RECIPES: dict[str, Recipe] = {
    "digits": Recipe(
        "8 × 8 digits, one layer coupled to itself",
        lambda: _pictures("digits"),
        lambda: LoopedMLP(64, 48, 10, bound="proven"),
        TrainingConfig(epochs=25, batch_size=64, learning_rate=5e-3, schedule="cosine"),
    ),
    "mnist-layered": Recipe(
        "5,000 images of MNIST, two layers coupled both ways",
        lambda: _pictures("mnist"),
        lambda: HopfieldMLP(
            [784, 48, 32, 10], bound="proven", feedback=1.0, start="random"
        ),
        TrainingConfig(epochs=10, batch_size=64, learning_rate=3e-3, schedule="cosine"),
    ),
    "mnist-conv": Recipe(
        "5,000 images of MNIST, two layers of maps coupled both ways",
        lambda: _pictures("mnist", image=True),
        lambda: HopfieldConvNet(
            image=(1, 28, 28), channels=(6, 12), classes=10,
            pooling=(MaxPooling(2), AveragePooling(2)), tol=1e-2, bound="proven",
        ),
        TrainingConfig(epochs=3, batch_size=50, learning_rate=6e-3, schedule="cosine"),
    ),
    "reversal": Recipe(
        "sequences reversed by attention with an energy",
        _reversed,
        lambda: EquilibriumTransformer(
            SYMBOLS, LENGTH, width=24, bound="proven", radius=1.0
        ),
        TrainingConfig(epochs=1, batch_size=64, learning_rate=1e-2, schedule="cosine"),
        token_loss,
    ),
    "resistive": Recipe(
        "8 × 8 digits, a circuit of resistors and diodes",
        lambda: _pictures("digits"),
        lambda: ResistiveMLP([64, 16, 10]).double(),
        TrainingConfig(epochs=12, batch_size=64, learning_rate=0.05, schedule="cosine"),
    ),
}  # fmt: skip
"""Every network by its name."""
