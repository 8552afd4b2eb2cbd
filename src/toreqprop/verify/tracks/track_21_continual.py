"""Track 21: one task after the other: what is forgotten, with and without consolidation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop.training import TrainingConfig, fit
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
from toreqprop.verify.networks import Split, baseline, load, looped
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.twins import BACKPROP, EP, score
from toreqprop.verify.verdict import Bound, above, above_chance, at_least

STRENGTH = 100.0
"""Of the penalty: the best of those in results/continual_search.jsonl for the mean over both tasks,
on training images of other seeds held out for that."""

SAMPLES = 100
PENALTIES = ("none", "own", "shuffled")
Loss = Callable[[Tensor, Tensor], Tensor]


def run(context: Context) -> Measurements:
    hidden, epochs = context.level.pick((48, 6), (64, 8), (96, 10))
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    kept: list[Accuracy] = []
    for seed in context.seeds:
        context.report(f"two tasks, seed {seed}")
        first = load(context, "digits", seed)
        second = _permuted(first, seed)
        for arm in (EP, BACKPROP):
            for penalty in PENALTIES[: 3 if arm == EP else 2]:
                model: nn.Module = (
                    looped(first, hidden, seed, radius=0.9, bound="tight")
                    if arm == EP
                    else baseline(first, hidden, seed)
                )
                config = TrainingConfig(epochs=epochs, learning_rate=2e-3, seed=seed)
                fit(model, first.x, first.y, config)
                before = score(model, first.test_x, first.test_y)
                loss: Loss = F.cross_entropy
                if penalty != "none":
                    loss = _consolidated(context, model, first, seed, penalty)
                fit(model, second.x, second.y, config, loss=loss)
                after = score(model, first.test_x, first.test_y)
                new = score(model, second.test_x, second.test_y)
                found.setdefault((arm, penalty), []).append((before, after, new))
                if arm == EP and penalty == "own":
                    count = len(first.test_y)
                    part = Accuracy((round(after * count / 100),), (count,), first.chance)
                    kept.append(part)

    def forgotten(arm: str, penalty: str) -> tuple[float, ...]:
        return tuple(before - after for before, after, _ in found[arm, penalty])

    def both(arm: str, penalty: str) -> tuple[float, ...]:
        return tuple(0.5 * (after + new) for _, after, new in found[arm, penalty])

    rows = [
        (arm, penalty, *(sum(c) / len(c) for c in zip(*v, strict=True)))
        for (arm, penalty), v in found.items()
    ]
    return Measurements(
        {
            "accuracy": pooled(kept),
            "forgotten": sum(forgotten(EP, "none")) / len(kept),
            "saved": Paired(forgotten(EP, "none"), forgotten(EP, "own")),
            "both_gain": Paired(both(EP, "own"), both(EP, "none")),
            "own_minus_shuffled": Paired(both(EP, "own"), both(EP, "shuffled")),
            "twin_saved": Paired(forgotten(BACKPROP, "none"), forgotten(BACKPROP, "own")),
            "ep_minus_twin": Paired(forgotten(EP, "none"), forgotten(BACKPROP, "none")),
        },
        tables=(
            Table(
                "Accuracy in percent: the first task before and after the second, and the second; "
                "means over seeds",
                (
                    Column("network"), Column("penalty"), Column("first, before", ".1f"),
                    Column("first, after", ".1f"), Column("second", ".1f"),
                ),
                tuple(rows),
            ),
        ),
        figures=(
            Figure(
                "Accuracy on the first task before and after the second, %",
                "",
                "test accuracy, %",
                tuple(
                    Series(
                        f"{arm}, {penalty}",
                        ("first, before", "first, after", "second"),
                        (before, after, new),
                    )
                    for arm, penalty, before, after, new in rows
                ),
                bars=True,
            ),
        ),
    )  # fmt: skip


def _permuted(data: Split, seed: int) -> Split:
    """The same digits with their pixels in another order: a task of equal difficulty."""
    order = torch.randperm(data.features, generator=torch.Generator().manual_seed(seed))
    return replace(data, x=data.x[:, order], test_x=data.test_x[:, order])


def _consolidated(context: Context, model: nn.Module, data: Split, seed: int, penalty: str) -> Loss:
    """Cross-entropy and ``λ/2·Σ F·(θ − θ*)²`` with F the mean square of the model's own gradient,
    sample by sample: EP's for the network that settles; "shuffled" gives each weight another's."""
    rows = torch.randperm(len(data.y), generator=torch.Generator().manual_seed(seed))[:SAMPLES]
    fisher = [torch.zeros_like(p) for p in model.parameters()]
    for row in rows.split(1):
        model.zero_grad()
        F.cross_entropy(model(data.x[row]), data.y[row]).backward()
        for total, parameter in zip(fisher, model.parameters(), strict=True):
            assert parameter.grad is not None
            total += parameter.grad.square() / SAMPLES
    anchors = [p.detach().clone() for p in model.parameters()]
    if penalty == "shuffled":
        generator = torch.Generator().manual_seed(seed)
        fisher = [
            f.flatten()[torch.randperm(f.numel(), generator=generator)].reshape(f.shape)
            for f in fisher
        ]
    strength = 0.0 if context.sabotaged("no penalty") else STRENGTH

    def loss(output: Tensor, target: Tensor) -> Tensor:
        parts = [
            (f * (p - a).square()).sum()
            for f, p, a in zip(fisher, model.parameters(), anchors, strict=True)
        ]
        return F.cross_entropy(output, target) + 0.5 * strength * torch.stack(parts).sum()

    return loss


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        at_least("forgotten", 10.0, "points forgotten without consolidation"),
        above("saved", 4.0, "points that consolidation by EP's gradients keeps"),
        above("both_gain", 0.5, "mean accuracy over both tasks gained by it, points"),
        above_chance("accuracy", "first task after the second, consolidated, %"),
    )


TRACK = Track(
    number=21,
    title="Continual Learning",
    claim="Networks that settle forget a task as feed-forward twins do, and a quadratic penalty "
    "sized by EP's own squared gradients keeps much of it. Whether it matters which weight gets "
    "which share of it is measured, and not claimed.",
    experiment="Digits, then digits with permuted pixels, one head: accuracy on the first before "
    "and after, with and without consolidation, EP and a backprop twin.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("no penalty", "consolidation has no strength"),
        Sabotage("shuffled labels", "networks train on labels that mean nothing"),
    ),
    statements=(
        "Without consolidation EP forgot {forgotten:.1f} points (EP minus backprop "
        "{ep_minus_twin}); with it {saved} were kept (backprop {twin_saved}), and the mean over "
        "both tasks rose by {both_gain}. Against a penalty whose shares are shuffled over the "
        "weights that mean is {own_minus_shuffled} away.",
    ),
    cost=6,
)
