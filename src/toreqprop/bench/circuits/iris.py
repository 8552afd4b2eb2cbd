"""Iris learnt by a resistive network whose every voltage a simulator gives."""

from __future__ import annotations

import torch
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split
from torch import Tensor

from toreqprop.gradients import GradientEstimator
from toreqprop.models import ResistiveMLP
from toreqprop.solvers import Solver
from toreqprop.training import TrainingConfig, fit

TEST = 30
"""Flowers to test."""

SIZES = (4, 8, 3)


def iris(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """120 flowers to train on and 30 to test, standardised by the former."""
    x, y = load_iris(return_X_y=True)
    parts = train_test_split(x, y, test_size=TEST, stratify=y, random_state=seed)
    x_train, x_test = (torch.as_tensor(part, dtype=torch.float64) for part in parts[:2])
    mean, spread = x_train.mean(0), x_train.std(0)
    labels = [torch.as_tensor(part) for part in parts[2:]]
    return (x_train - mean) / spread, labels[0], (x_test - mean) / spread, labels[1]


def train(
    solver: Solver | None, seed: int, epochs: int, gradient: GradientEstimator | None = None
) -> tuple[ResistiveMLP, int]:
    """The trained network, and how many of the test flowers it names."""
    x, y, test_x, test_y = iris(seed)
    torch.manual_seed(seed)
    model = ResistiveMLP(SIZES, solver=solver, gradient=gradient).double()
    fit(model, x, y, TrainingConfig(epochs, batch_size=30, learning_rate=0.1, seed=seed))
    with torch.no_grad():
        return model, int((model(test_x).argmax(1) == test_y).sum())
