"""Track 25: MNIST and Fashion-MNIST, held-out accuracy, against backpropagation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from toreqprop.bench.bounds import BOUNDS
from toreqprop.bench.hyperparameters import settings
from toreqprop.bench.run import Run, build
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
from toreqprop.verify.networks import load, train
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, above_chance, at_least

TITLES = {"mnist": "MNIST", "fashion": "Fashion-MNIST"}
QUICK_BOUNDS = {"mnist": (90.0, -1.5), "fashion": (80.0, -1.5)}
"""Least accuracy and least gap in points after the few epochs of a smoke test."""


def run(context: Context) -> Measurements:
    values: dict[str, Value] = {}
    rows: list[tuple[Any, ...]] = []
    groups: list[Series] = []
    chances: dict[str, float] = {}
    for task, title in TITLES.items():
        chosen = settings(task)
        chosen = context.level.pick(replace(chosen, hidden=128, epochs=4), chosen, chosen)
        runs: dict[str, list[Accuracy]] = {"backprop": [], "ep": []}
        for seed in context.seeds:
            # The draw of 5,000 images is the same for all seeds of a smoke test: reading the
            # files again would take longer than training.
            drawn = context.level.pick(context.seed, seed, seed)
            data = context.data(task, drawn)
            tensors = load(context, task, drawn)
            for model in runs:
                context.report(f"{title}, {model}, seed {seed}")
                name = "ep" if model == "ep" else "backprop"
                benchmark = Run(task, name, seed, chosen)  # type: ignore[arg-type]
                torch.manual_seed(seed)
                net = build(benchmark, data, chosen.model(benchmark.model))
                if model == "ep" and context.sabotaged("wrong sign"):
                    net.gradient = WrongSign(net.gradient)  # type: ignore[arg-type, assignment]
                trained = train(net, tensors, chosen.training(benchmark.model, seed))
                runs[model].append(trained.accuracy())
        both = {model: pooled(found) for model, found in runs.items()}
        pair = Paired(both["ep"].scores, both["backprop"].scores)
        values |= {
            f"{task}_ep_accuracy": both["ep"],
            f"{task}_backprop_accuracy": both["backprop"],
            f"{task}_gap": pair,
        }
        for model, label in (("backprop", "Backprop MLP"), ("ep", "EqProp (LoopedMLP)")):
            low, high = both[model].interval
            gap = pair.compare(1.0).gap
            rows.append(
                (
                    title, label, len(tensors.y), len(tensors.test_y), both[model].mean,
                    f"{low:.1f} to {high:.1f}", both[model].chance_percent,
                    ", ".join(f"{s:.2f}" for s in both[model].scores),
                    gap.mean if model == "ep" else None,
                )
            )  # fmt: skip
        chances[f"chance, {title}"] = both["ep"].chance_percent
        groups.append(Series(title, ("Backprop MLP", "EqProp"), _means(both)))
    return Measurements(
        values,
        tables=(
            Table(
                f"Held-out accuracy over {len(context.seeds)} seeds; the gap is EqProp minus "
                "backprop in points",
                (
                    Column("Data"),
                    Column("Method"),
                    Column("training images", "d"),
                    Column("test images", "d"),
                    Column("Test Accuracy, %", ".2f"),
                    Column("95 % interval"),
                    Column("chance, %", ".1f"),
                    Column("by seed, %"),
                    Column("Gap", "+.2f"),
                ),
                tuple(rows),
            ),
        ),
        figures=(
            Figure(
                "Held-out accuracy",
                "",
                "test accuracy, %",
                tuple(groups),
                bars=True,
                lines=chances,
            ),
        ),
    )


def _means(both: dict[str, Accuracy]) -> tuple[float, ...]:
    return both["backprop"].mean, both["ep"].mean


def bounds(level: Level) -> tuple[Bound, ...]:
    listed: list[Bound] = []
    for task, title in TITLES.items():
        known = BOUNDS[task]
        least, gap = level.pick(
            QUICK_BOUNDS[task], (known.accuracy, known.gap), (known.accuracy, known.gap)
        )
        listed += [
            above_chance(f"{task}_ep_accuracy", f"{title}: accuracy of EqProp, %"),
            above_chance(f"{task}_backprop_accuracy", f"{title}: accuracy of backprop, %"),
            at_least(f"{task}_ep_accuracy", least, f"{title}: accuracy of EqProp, %"),
            at_least(f"{task}_gap", gap, f"{title}: EqProp minus backprop, points"),
        ]
    return tuple(listed)


TRACK = Track(
    number=25,
    title="Real Datasets",
    claim="EqProp learns MNIST and Fashion-MNIST to held-out accuracies next to those of "
    "backpropagation.",
    experiment="Train networks of equal size on 5,000 images of both data sets and test on all "
    "10,000 test images. All 60,000 are rows of the benchmark.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("shuffled labels", "both methods train on labels that mean nothing"),
        Sabotage("wrong sign", "EqProp's gradient points uphill"),
    ),
    statements=(
        "MNIST: EqProp {mnist_ep_accuracy}, backprop {mnist_backprop_accuracy}; EqProp minus "
        "backprop {mnist_gap}.",
        "Fashion-MNIST: EqProp {fashion_ep_accuracy}, backprop {fashion_backprop_accuracy}; EqProp "
        "minus backprop {fashion_gap}.",
    ),
    cost=60,
)
