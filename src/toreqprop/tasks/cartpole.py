"""CartPole-BC: clone a linear state feedback that balances a pole on a cart."""

from __future__ import annotations

import numpy as np

from toreqprop.tasks.control import Disturbance, load_control
from toreqprop.tasks.dataset import Dataset

ENVIRONMENT = "CartPole-v1"

GAINS = np.array([0.05, 0.2, 1.0, 0.8], np.float32)
"""Weights of cart position, cart velocity, pole angle and pole velocity. Of nine gain
vectors tried by hand, seven of which score 500, the one whose clones were the most accurate."""

DISTURBANCE = Disturbance(probability=0.05, longest=5)
"""Undisturbed, the expert holds the pole within a degree of upright: nothing to learn from."""


def expert(observations: np.ndarray) -> np.ndarray:
    """Push right where `GAINS · (x, ẋ, θ, θ̇) > 0`, left elsewhere: towards where the pole falls."""
    return (observations @ GAINS > 0).astype(np.int64)


def load(seed: int, full: bool = False) -> Dataset:
    """Pairs of observation and expert action, recorded by seed; `full` changes nothing here."""
    return load_control("cartpole", ENVIRONMENT, expert, DISTURBANCE, seed)
