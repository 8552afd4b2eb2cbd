"""Track 13: convolutional EP on held-out images, beside backprop and a readout-only control."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from toreqprop.bench.unnudged import UnnudgedEP
from toreqprop.certificate import Certificate, certify
from toreqprop.certificate.estimate import INPUT
from toreqprop.energies import POOLINGS, AveragePooling, MaxPooling, Sigmoid
from toreqprop.gradients import CenteredEP, GradientEstimator
from toreqprop.models import BackpropConvNet, HopfieldConvNet
from toreqprop.models.hopfield_conv import NUDGE_AT_KINKS
from toreqprop.training import TrainingConfig
from toreqprop.verify import kinks
from toreqprop.verify.faults import WrongSign
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import (
    Accuracy,
    Column,
    Figure,
    Measurements,
    Paired,
    Series,
    Table,
    Value,
    pooled,
)
from toreqprop.verify.mutations import plantable
from toreqprop.verify.networks import Split, certificate_table, load, train
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, above_chance, at_least, at_most

METHODS = {
    "backprop": "Backprop, same layers",
    "ep": "EqProp (HopfieldConvNet)",
    "readout": "Readout only (nudge removed)",
}
BATCH = 24
BETA = 0.02
"""The states of the last layer have a range of 0.32."""

GRAIN = 0.01
"""Noise on standardised images for the image's own gradient. In a blank patch all pixels of a
window tie, rounding picks the one that wins, and a maximum has no gradient to compare there:
float32 and float64 pass it to different pixels."""

KINK_BETAS = (0.05, 0.02, 0.01, 1e-3, NUDGE_AT_KINKS)
"""Down to the default under max pooling: `kinks` says why strong nudges have no order there."""


@dataclass(frozen=True)
class Size:
    """How much a level trains."""

    images: int | None
    test_images: int | None
    channels: tuple[int, int]
    epochs: int
    learning_rate: float

    def training(self, seed: int) -> TrainingConfig:
        return TrainingConfig(
            epochs=self.epochs,
            batch_size=32,
            learning_rate=self.learning_rate,
            schedule="cosine",
            seed=seed,
        )


def size_of(level: Level) -> Size:
    return level.pick(
        Size(2000, 4000, (8, 16), 2, 1e-2),
        Size(None, None, (8, 16), 6, 6e-3),
        Size(None, None, (8, 16), 6, 6e-3),
    )


@plantable
def run(context: Context) -> Measurements:
    size = size_of(context.level)
    scores: dict[str, list[Accuracy]] = {method: [] for method in METHODS}
    certificates: list[tuple[int, str, Certificate]] = []
    for seed in context.seeds:
        # One draw of images for all seeds of a smoke test: reading the files takes its time.
        data = load(context, "mnist", context.level.pick(context.seed, seed, seed))
        data = _part(data, size)
        for method in METHODS:
            context.report(f"{METHODS[method]}, seed {seed}")
            model = _network(context, method, data, size, seed)
            if isinstance(model, HopfieldConvNet) and method == "ep":
                certificates += _certify(model, data, seed, "before training")
            trained = train(model, data, size.training(seed))
            scores[method].append(trained.accuracy(contrast=method == "readout"))
            if isinstance(model, HopfieldConvNet) and method == "ep":
                certificates += _certify(model, data, seed, "after training")
    for name in POOLINGS:
        model = _pooled_by(context, name, data, context.seed)
        certificates += _certify(model, data, context.seed, f"{name} pooling")
    context.report("nudges under max pooling")
    kinked = _pooled_by(context, "max", data, context.seed)
    over_beta = kinks.nudged(kinked, data.x[:BATCH], data.y[:BATCH], KINK_BETAS)
    both = {method: pooled(found) for method, found in scores.items()}
    tensors = [(t, "grain" in name) for _, name, c in certificates for t in c.tensors]
    compared = [t for t, grainy in tensors if grainy or t.name != INPUT]
    values: dict[str, Value] = {
        "ep_accuracy": both["ep"],
        "backprop_accuracy": both["backprop"],
        "readout_accuracy": both["readout"],
        "gap": Paired(both["ep"].scores, both["backprop"].scores),
        "gain": Paired(both["ep"].scores, both["readout"].scores),
        "min_cosine": min(t.cosine for t in compared),
        "norm_error": max(abs(t.norm_ratio - 1) for t in compared),
        "blank_cosine": min(t.cosine for t, grainy in tensors if not grainy and t.name == INPUT),
        "certificates": len(certificates),
        "largest_changed": max(n.changed for n in over_beta),
        "least_changed": over_beta[-1].changed,
        "cosine_where_winners_stay": min(
            (n.min_cosine for n in over_beta if n.changed == 0), default=0.0
        ),
        "cosine_where_winners_change": min(
            (n.image_cosine for n in over_beta if n.changed), default=1.0
        ),
    }
    return Measurements(
        values,
        tables=(
            _accuracies(both, len(data.y), len(data.test_y)),
            certificate_table(
                "Centred EP in float32 against the implicit gradient in float64, by tensor",
                certificates,
            ),
            _over_beta(over_beta),
        ),
        figures=(
            Figure(
                "Held-out accuracy on MNIST",
                "",
                "test accuracy, %",
                (
                    Series(
                        f"{len(data.y)} training images",
                        tuple(METHODS.values()),
                        tuple(both[method].mean for method in METHODS),
                    ),
                ),
                bars=True,
                lines={"chance": both["ep"].chance_percent},
            ),
        ),
    )


def _estimator(context: Context, method: str, beta: float = BETA) -> GradientEstimator:
    if method == "readout" or context.sabotaged("nudge removed"):
        return UnnudgedEP(beta)
    right = CenteredEP(beta)
    return WrongSign(right) if context.sabotaged("wrong sign") else right


def _network(context: Context, method: str, data: Split, size: Size, seed: int) -> nn.Module:
    """Max pooling of the image, outside the relaxation, and average pooling within it."""
    image = _image(data)
    pooling = (MaxPooling(), AveragePooling())
    torch.manual_seed(seed)
    if method == "backprop":
        return BackpropConvNet(image, size.channels, data.classes, pooling=pooling)
    return HopfieldConvNet(
        image,
        size.channels,
        data.classes,
        pooling=pooling,
        gradient=_estimator(context, method),
        tol=1e-3,
        on_failure="ignore",
    )


def _pooled_by(context: Context, name: str, data: Split, seed: int) -> HopfieldConvNet:
    torch.manual_seed(seed)
    return HopfieldConvNet(
        _image(data),
        (4, 6),
        data.classes,
        pooling=POOLINGS[name](),
        activation=Sigmoid(),
        gradient=_estimator(context, "ep", NUDGE_AT_KINKS if name == "max" else BETA),
        on_failure="ignore",
    )


def _part(data: Split, size: Size) -> Split:
    """The first images of a set, with the chance level of the test labels among them."""
    test_y = data.test_y[: size.test_images]
    return replace(
        data,
        x=data.x[: size.images],
        y=data.y[: size.images],
        test_x=data.test_x[: size.test_images],
        test_y=test_y,
        chance=float(test_y.bincount().max()) / len(test_y),
    )


def _image(data: Split) -> tuple[int, int, int]:
    side = round(data.features**0.5)
    return (1, side, side)


def _certify(
    model: HopfieldConvNet, data: Split, seed: int, name: str
) -> list[tuple[int, str, Certificate]]:
    """On images as they are, and with a grain that leaves no ties."""
    x, y = data.x[:BATCH], data.y[:BATCH]
    grain = GRAIN * torch.randn(x.shape, generator=torch.Generator().manual_seed(seed))
    return [
        (seed, name, certify(model, x, y)),
        (seed, f"{name}, images with grain", certify(model, x + grain, y)),
    ]


def _accuracies(both: dict[str, Accuracy], images: int, test_images: int) -> Table:
    rows: list[tuple[Any, ...]] = []
    for method, label in METHODS.items():
        low, high = both[method].interval
        scores = ", ".join(f"{s:.2f}" for s in both[method].scores)
        interval = f"{low:.1f} to {high:.1f}"
        rows.append((label, both[method].mean, interval, both[method].chance_percent, scores))
    return Table(
        f"MNIST, {images} training images, {test_images} test images",
        (
            Column("Method"),
            Column("Test Accuracy, %", ".2f"),
            Column("95 % interval"),
            Column("chance, %", ".1f"),
            Column("by seed, %"),
        ),
        tuple(rows),
    )


def _over_beta(found: list[kinks.Nudged]) -> Table:
    return Table(
        "Max pooling within the relaxation: where a nudge makes another pixel win, the image's "
        "gradient has an error that does not fall with β",
        (
            Column("β", "g"),
            Column("windows whose winner changes", "d"),
            Column("of", "d"),
            Column("cosine of the image's gradient", "+.6f"),
            Column("smallest cosine", "+.6f"),
        ),
        tuple(n.row for n in found),
    )


def bounds(level: Level) -> tuple[Bound, ...]:
    # With twice the channels and 12 epochs it was 97.5 % at Full, which took most of an hour.
    least, gap, gain = level.pick((86.0, -2.0, 1.0), (95.0, -1.0, 1.0), (95.0, -1.0, 1.0))
    return (
        above_chance("ep_accuracy", "accuracy of EqProp, %"),
        above_chance("backprop_accuracy", "accuracy of backprop, %"),
        at_least("ep_accuracy", least, "accuracy of EqProp, %"),
        at_least("gap", gap, "EqProp minus backprop of the same layers, points"),
        at_least("gain", gain, "EqProp minus readout-only training, points"),
        at_least("min_cosine", 0.99, "smallest signed cosine with the exact gradient"),
        at_least(
            "cosine_where_winners_stay", 0.99, "max pooling: the same where no winner changes"
        ),
        at_most("norm_error", 0.05, "largest error of a gradient's norm"),
    )


TRACK = Track(
    number=13,
    title="Convolutional EqProp",
    claim="A convolutional network learns its kernels by EqProp: its gradients are the exact ones "
    "under every pooling, and it reads held-out digits next to backprop and better than a "
    "network of which only the readout learns.",
    experiment="Train two convolutional layers on MNIST (2,000 images at Smoke Test, 5,000 above) "
    "by EqProp, by backprop, and by EqProp with the nudge removed; test on held-out images (4,000 "
    "at Smoke Test, 10,000 above); certificates before and after training and for average, max and "
    "soft pooling.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("wrong sign", "EqProp's gradient points uphill"),
        Sabotage("nudge removed", "the nudged phases relax without a nudge"),
        Sabotage("gradient of averaged kernels x0.7", "one tensor's gradient is too small"),
        Sabotage("shuffled labels", "all methods train on labels that mean nothing"),
    ),
    statements=(
        "EqProp {ep_accuracy}, backprop {backprop_accuracy}, readout only {readout_accuracy}.",
        "EqProp minus backprop {gap}; EqProp minus readout only {gain}.",
        "In {certificates} certificates the smallest signed cosine was {min_cosine:.4f} and the "
        "largest error of a norm {norm_error:.2%}, the gradient of blank images apart: where all "
        "pixels of a window tie, rounding picks the winner, and its cosine was {blank_cosine:.4f} "
        "at the lowest.",
        "Under max pooling up to {largest_changed} windows had another winner in one of the nudged "
        "phases ({least_changed} at the default nudge); the cosine of the image's gradient was "
        "{cosine_where_winners_change:.4f} at the lowest there, and all cosines "
        "{cosine_where_winners_stay:.6f} or more where no winner changed.",
    ),
    cost=25,
)
