"""Track 20: features that EP learnt on one task, frozen, for another."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop.models import BackpropMLP, LoopedMLP
from toreqprop.training import TrainingConfig
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import (
    Accuracy,
    Column,
    Figure,
    Measurements,
    Paired,
    Series,
    Table,
    pooled,
)
from toreqprop.verify.networks import Split, baseline, load, looped, train
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, above, above_chance, at_most

SHOTS = 5
ARMS = ("EP, learnt", "EP, fresh", "backprop, learnt")
HALVES, IMAGES = "digits 0-4 to 5-9", "MNIST to Fashion"


def run(context: Context) -> Measurements:
    hidden, epochs = context.level.pick((32, 6), (64, 10), (96, 15))
    found: dict[tuple[str, str], list[Accuracy]] = {}
    for seed in context.seeds:
        context.report(f"halves of digits, seed {seed}")
        data = load(context, "digits", seed)
        _add(found, context, HALVES, _half(data, 0), _half(data, 5), hidden, epochs, seed)
    images = context.seeds[: context.level.pick(1, 3, 5)]
    for seed in images:
        context.report(f"MNIST to Fashion, seed {seed}")
        source, target = load(context, "mnist", seed), load(context, "fashion", seed)
        width, passes = context.level.pick((32, 1), (48, 2), (64, 3))
        _add(found, context, IMAGES, source, target, width, passes, seed)
    scores = {key: pooled(parts) for key, parts in found.items()}
    learnt, fresh, twin = (scores[HALVES, arm] for arm in ARMS)
    far, far_fresh, far_twin = (scores[IMAGES, arm] for arm in ARMS)
    return Measurements(
        {
            "accuracy": learnt,
            "fresh_accuracy": fresh,
            "twin_accuracy": twin,
            "gain": Paired(learnt.scores, fresh.scores),
            "twin_gap": Paired(learnt.scores, twin.scores),
            "images_accuracy": far,
            "images_fresh_accuracy": far_fresh,
            "images_twin_accuracy": far_twin,
            "images_gain": Paired(far.scores, far_fresh.scores),
        },
        tables=(
            Table(
                f"Test accuracy on the new task: a readout learnt from {SHOTS} samples a class on "
                "frozen hidden states",
                (
                    Column("tasks"), Column("features"), Column("test accuracy, %", ".1f"),
                    Column("by seed, %"), Column("chance, %", ".1f"),
                ),
                tuple(
                    (tasks, arm, s.mean, ", ".join(f"{v:.1f}" for v in s.scores), s.chance_percent)
                    for (tasks, arm), s in scores.items()
                ),
            ),
        ),
        figures=(
            Figure(
                "Test accuracy on the new task, %",
                "",
                "test accuracy, %",
                tuple(
                    Series(tasks, ARMS, tuple(scores[tasks, arm].mean for arm in ARMS))
                    for tasks in (HALVES, IMAGES)
                ),
                bars=True,
            ),
        ),
    )  # fmt: skip


def _half(data: Split, first: int) -> Split:
    """Five classes of ten, numbered from zero."""

    def chosen(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        rows = (y >= first) & (y < first + 5)
        return x[rows], y[rows] - first

    x, y = chosen(data.x, data.y)
    test_x, test_y = chosen(data.test_x, data.test_y)
    chance = float(test_y.bincount().max() / len(test_y))
    return Split(x, y, test_x, test_y, data.features, 5, chance)


def _add(
    found: dict[tuple[str, str], list[Accuracy]],
    context: Context,
    tasks: str,
    source: Split,
    target: Split,
    hidden: int,
    epochs: int,
    seed: int,
) -> None:
    """The accuracy on ``target`` of every arm, after ``source``."""
    config = TrainingConfig(epochs=epochs, learning_rate=3e-3, seed=seed)
    for arm in ARMS:
        network: nn.Module = (
            baseline(source, hidden, seed)
            if arm == "backprop, learnt"
            else looped(source, hidden, seed, radius=0.9, bound="tight")
        )
        if arm != "EP, fresh" and not context.sabotaged("nothing is learnt first"):
            train(network, source, config)
        part = _read_out(context, network, target, seed)
        found.setdefault((tasks, arm), []).append(part)


def _read_out(context: Context, network: nn.Module, data: Split, seed: int) -> Accuracy:
    """A linear readout of frozen features, learnt from a few samples of each class."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(data.y), generator=generator)
    rows = torch.cat([order[data.y[order] == c][:SHOTS] for c in range(data.classes)])
    with torch.no_grad():
        x, test = _features(network, data.x[rows]), _features(network, data.test_x)
    torch.manual_seed(seed)
    head = nn.Linear(x.shape[1], data.classes)
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-2, weight_decay=1e-3)
    for _ in range(0 if context.sabotaged("no readout is learnt") else 200):
        optimizer.zero_grad()
        F.cross_entropy(head(x), data.y[rows]).backward()
        optimizer.step()
    with torch.no_grad():
        correct = int((head(test).argmax(1) == data.test_y).sum())
    return Accuracy((correct,), (len(data.test_y),), data.chance)


def _features(network: nn.Module, x: Tensor) -> Tensor:
    if isinstance(network, LoopedMLP):
        return network.equilibrium(x).state[0]
    assert isinstance(network, BackpropMLP)
    return network.layers[:-1](x)


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        above_chance("accuracy", "test accuracy on digits 5-9 with features of 0-4, %"),
        at_most("gain", -1.0, "the same minus that of fresh features, points"),
        above("twin_gap", 0.0, "the same minus that of backprop's features, points"),
        above_chance("images_accuracy", "test accuracy on Fashion with features of MNIST, %"),
        at_most("images_gain", 0.0, "the same minus that of fresh features, points",
                required=False),
    )  # fmt: skip


TRACK = Track(
    number=20,
    title="Transfer",
    claim="Hidden states learnt on one half of the digits and frozen do not transfer: they serve "
    "the other half worse than fresh ones do. EP's lose less than those of a backprop twin of as "
    "many weights, which is a layer deeper.",
    experiment="A readout learnt from five samples a class on frozen states: digits 0-4 to 5-9, "
    "and MNIST to Fashion, against untrained states and a backprop twin's.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("nothing is learnt first", "the learnt features are fresh ones"),
        Sabotage("no readout is learnt", "answers come from a readout as it was drawn"),
    ),
    statements=(
        "Digits 5-9 with features of 0-4: EP {accuracy}, fresh {fresh_accuracy}, backprop "
        "{twin_accuracy}; learnt minus fresh {gain}, EP minus backprop {twin_gap}.",
        "Fashion with features of MNIST: EP {images_accuracy}, fresh {images_fresh_accuracy}; "
        "learnt minus fresh {images_gain}.",
    ),
    cost=6,
)
