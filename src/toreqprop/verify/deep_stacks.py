"""Stacks from one to sixty-four layers, all built and trained alike."""

from __future__ import annotations

from typing import Any

import torch

from toreqprop.models import HopfieldMLP
from toreqprop.verify.networks import Split

WIDTH = 16


def deep(data: Split, layers: int, seed: int, **options: Any) -> HopfieldMLP:
    """A certified stack near the edge of stability, in double precision."""
    torch.manual_seed(seed)
    net = HopfieldMLP.deep(
        data.features, WIDTH, layers, data.classes, on_failure="ignore", **options
    )
    return net.double()


def in_double(data: Split, count: int) -> Split:
    """The first rows of a data set, for networks in double precision."""
    return Split(
        data.x[:count].double(), data.y[:count], data.test_x.double(), data.test_y,
        data.features, data.classes, data.chance,
    )  # fmt: skip
