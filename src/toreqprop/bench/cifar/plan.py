"""What the best published result of EP on CIFAR-10 would take here, on one GPU: a computation.

Published (E P and Srinivasan 2025, arXiv 2509.26003, and the README and defaults of its code): a
Hopfield network of thirteen weights with skip connections, Hopfield-ResNet13, 93.92 % after 300
epochs; batches of 128, 120 iterations of the free phase, 50 of each of two nudged ones. "More than
30 hours on a GPU" is second-hand, from a summary of the paper.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from toreqprop.bench.cifar.recipe import CLASSES
from toreqprop.bench.cifar.training import pixels
from toreqprop.certificate import certify
from toreqprop.models import Residual
from toreqprop.models.converted import convert
from toreqprop.tasks.cifar10 import fixed_split

TRAINING_IMAGES = 50_000
WIDTHS = (1, 2, 4, 4)
"""Channels of the four blocks, in units of the first's."""


@dataclass(frozen=True)
class Published:
    """What the authors did and reached."""

    accuracy: float = 93.92
    epochs: int = 300
    width: int = 128
    free_iterations: int = 120
    nudged_iterations: int = 50
    nudged_phases: int = 2
    hours: float = 30.0

    @property
    def directions(self) -> int:
        """How often every weight is multiplied with in a training step: both ways in each
        iteration, and the two correlations of the update."""
        phases = self.free_iterations + self.nudged_phases * self.nudged_iterations
        return 2 * phases + self.nudged_phases


PUBLISHED = Published()


def products(width: int) -> int:
    """Multiplications of one pass upwards of Hopfield-ResNet13, for one image."""
    below, side, total = 3, 32, 0
    for factor in WIDTHS:
        own, half = factor * width, side // 2
        total += side**2 * 9 * below * own + half**2 * (9 * own * own + below * own)
        below, side = own, half
    return total + below * side**2 * CLASSES


def residual_network(width: int) -> nn.Sequential:
    """Its layers as torch modules, but for the skip of the three colours past the first layer."""
    parts: list[nn.Module] = [
        nn.Conv2d(3, width, 3, padding=1), nn.ReLU6(),
        nn.Conv2d(width, width, 3, 2, padding=1), nn.ReLU6(),
    ]  # fmt: skip
    below = width
    for factor in WIDTHS[1:]:
        own = factor * width
        body = nn.Sequential(
            nn.Conv2d(below, own, 3, padding=1), nn.ReLU6(), nn.Conv2d(own, own, 3, 2, padding=1)
        )
        parts += [Residual(body, nn.Conv2d(below, own, 1, 2)), nn.ReLU6()]
        below = own
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(4 * below, CLASSES))


def measured(width: int, batch: int, rounds: int, feedback: float, tol: float) -> dict[str, Any]:
    """A training step of that network, narrow, by EP and by backprop on photographs, in turn: the
    passes of both phases, the certificate, and the ratio of processor times."""
    images, _, _ = fixed_split()
    x, y = pixels(torch.from_numpy(images.x[:batch])), torch.from_numpy(images.y[:batch])
    torch.manual_seed(0)
    model = convert(residual_network(width), feedback=feedback, tol=tol, on_failure="ignore")
    plain = model.to_sequential()
    times: dict[str, list[float]] = {"ep": [], "backprop": []}
    for _ in range(rounds + 1):
        for name, network in (("ep", model), ("backprop", plain)):
            started = time.process_time()
            F.cross_entropy(network(x), y).backward()
            times[name].append(1e3 * (time.process_time() - started))
    medians = {name: statistics.median(found[1:]) for name, found in times.items()}
    certificate = certify(model, x[:4], y[:4])
    return {
        "width": width,
        "batch": batch,
        "feedback": feedback,
        "tol": tol,
        "parameters": sum(p.numel() for p in model.parameters()),
        "certificate": certificate.as_dict(),
        "timing": medians,
    }


def planned(residual: dict[str, Any], told: Published = PUBLISHED) -> dict[str, float]:
    """Hours of one GPU: the authors' own, what backprop would take at the rate at which theirs
    multiplied, and EP here at the ratio measured."""
    own = products(told.width)
    steps = told.epochs * TRAINING_IMAGES
    theirs = float(told.directions * own * steps)
    rate = theirs / (3600 * told.hours)
    backprop = 3 * own * steps / rate / 3600
    ratio = residual["timing"]["ep"] / residual["timing"]["backprop"]
    return {
        "products": own,
        "directions": told.directions,
        "theirs": theirs,
        "rate": rate,
        "backprop_hours": backprop,
        "ratio": ratio,
        "hours": ratio * backprop,
        "cpu_days": residual["timing"]["ep"] / 1e3 / residual["batch"] * steps
        * own / products(residual["width"]) / 86400,
    }  # fmt: skip
