"""Fashion-MNIST: articles of clothing, 28x28."""

from __future__ import annotations

from toreqprop.tasks.dataset import Dataset
from toreqprop.tasks.images import load_images


def load(seed: int, full: bool = False) -> Dataset:
    """5,000 training images drawn by seed, or all 60,000 with `full`; all 10,000 test images."""
    return load_images("fashion", seed, full)
