"""A part of CIFAR-10 for tracks: the study at hand takes an hour, these seconds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from toreqprop.bench.cifar.recipe import Recipe
from toreqprop.bench.cifar.training import pixels
from toreqprop.certificate import Certificate, certify
from toreqprop.models import EquilibriumModel
from toreqprop.tasks.cifar10 import Images
from toreqprop.verify.measurements import Accuracy, Column, Table
from toreqprop.verify.track import Context

CERTIFIED = 8
SMALL = Recipe(channels=(12, 24), batch=32, tol=1e-3)
"""The study's recipe with fewer channels, for fewer images. Phases settle further: with few images
one pixel that wins elsewhere is a larger part of a gradient."""


def photographs(context: Context, count: int, tested: int) -> tuple[Images, Images]:
    """The first images of each part as bytes; the sabotage "shuffled labels" takes effect here."""
    data = context.data("cifar10", context.seed)
    assert data.standardiser is not None
    rows = (data.train_x[:count], data.test_x[:tested])
    x, test_x = (_bytes(data.standardiser.invert(r)) for r in rows)
    y = data.train_y[:count]
    if context.sabotaged("shuffled labels"):
        y = np.random.default_rng(context.seed).permutation(y)
    return Images(x, y), Images(test_x, data.test_y[:tested])


def _bytes(rows: np.ndarray) -> np.ndarray:
    return np.rint(255 * rows).astype(np.uint8).reshape(-1, 3, 32, 32)


def scored(right: np.ndarray, test: Images) -> Accuracy:
    """Of one seed's answers."""
    chance = float(np.bincount(test.y).max() / len(test.y))
    return Accuracy((int(right.sum()),), (len(right),), chance)


def certified(model: EquilibriumModel, images: Images) -> Certificate:
    """On the first images, at the model's own β and tolerance."""
    model.eval()
    return certify(model, *sample(images))


def sample(images: Images) -> tuple[Tensor, Tensor]:
    """The first images as the study standardises them, and their labels."""
    x, y = images.x[:CERTIFIED], images.y[:CERTIFIED]
    return pixels(torch.from_numpy(x)), torch.from_numpy(y)


def certificates_table(found: Sequence[tuple[int, str, Certificate]]) -> Table:
    """What certificates found, one in a row."""
    return Table(
        "Certificates at the network's own nudge and tolerance",
        (
            Column("seed", "d"), Column("training"), Column("smallest cosine", ".4f"),
            Column("norm ratios from", ".3f"), Column("to", ".3f"), Column("contraction", ".3f"),
            Column("cosine with backprop", ".3f"),
        ),
        tuple(
            (
                seed, when, c.min_cosine, min(t.norm_ratio for t in c.tensors),
                max(t.norm_ratio for t in c.tensors), c.contraction, c.backprop_cosine,
            )
            for seed, when, c in found
        ),
    )  # fmt: skip
