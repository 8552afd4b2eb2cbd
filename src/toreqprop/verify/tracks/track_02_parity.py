"""Track 2: EP against backpropagation, on real tasks, as an equivalence test."""

from __future__ import annotations

from dataclasses import replace

import torch

from toreqprop.bench.hyperparameters import TaskSettings, settings
from toreqprop.bench.run import Control, Run, build
from toreqprop.certificate import Certificate, certify
from toreqprop.models import EquilibriumModel
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
from toreqprop.verify.networks import Trained, load, train
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, above, above_chance, at_least, at_most, equivalent

MARGIN = 3.0
LEAST = {"digits": 94.0, "mnist": 94.0, "fashion": 83.0, "cartpole": 97.0, "acrobot": 95.0}


def tasks_of(level: Level) -> tuple[str, ...]:
    return level.pick(
        ("digits",), ("digits", "cartpole"), ("digits", "mnist", "fashion", "cartpole", "acrobot")
    )


STRONGEST = 0.1
"""Where the settings have a stronger nudge, this one is used: parity by a gradient that no
certificate accepts would show nothing of EP."""

BATCH = 64
Certified = tuple[str, int, str, Certificate]
"""Task, seed, age, certificate of the network with its own β, radius and tolerance."""


@plantable
def run(context: Context) -> Measurements:
    values: dict[str, Value] = {}
    rows: list[tuple[object, ...]] = []
    figure: list[Series] = []
    moved = []
    certified: list[Certified] = []
    for task in tasks_of(context.level):
        chosen = settings(task, False)
        chosen = context.level.pick(replace(chosen, hidden=64, epochs=20), chosen, chosen)
        chosen = replace(chosen, ep=replace(chosen.ep, beta=min(chosen.ep.beta or 1.0, STRONGEST)))
        scores: dict[str, list[Trained]] = {"backprop": [], "ep": []}
        for seed in context.seeds:
            for model in scores:
                context.report(f"{task}, {model}, seed {seed}")
                trained, change, found = _train(context, task, model, seed, chosen)
                certified += [(task, seed, age, c) for age, c in found]
                scores[model].append(trained)
                if model == "ep":
                    moved.append(change)
        both = {name: pooled([t.accuracy() for t in runs]) for name, runs in scores.items()}
        pair = Paired(both["ep"].scores, both["backprop"].scores)
        compared = pair.compare(MARGIN)
        values[f"{task}_backprop_accuracy"] = both["backprop"]
        values[f"{task}_ep_accuracy"] = both["ep"]
        values[f"{task}_gap"] = pair
        rows += [
            _row(task, "Backprop MLP", both["backprop"], None, None),
            _row(task, "EqProp (LoopedMLP)", both["ep"], compared.gap.mean, compared.equivalence_p),
        ]
        figure.append(Series(task, ("Backprop MLP", "EqProp"), _means(both)))
    values["hidden_change"] = min(moved)
    tensors = [t for *_, c in certified for t in c.tensors]
    values |= {
        "certificates": len(certified),
        "min_cosine": min(t.cosine for t in tensors),
        "norm_error": max(abs(t.norm_ratio - 1) for t in tensors),
        "refused": sum(not c.ok for *_, c in certified),
    }
    return Measurements(
        values,
        tables=(
            Table(
                f"Held-out accuracy over {len(context.seeds)} seeds, same data, epochs and "
                "parameter count; the gap is EqProp minus backprop in points",
                (
                    Column("Task"),
                    Column("Method"),
                    Column("Test Accuracy, %", ".2f"),
                    Column("95 % interval"),
                    Column("chance, %", ".1f"),
                    Column("by seed, %"),
                    Column("Gap", "+.2f"),
                    Column("p of equivalence", ".2g"),
                ),
                tuple(rows),
            ),
            Table(
                "Certificates of the EqProp networks, each with the β, radius and tolerance it is "
                "trained with",
                (
                    Column("Task"),
                    Column("seed", "d"),
                    Column("network"),
                    Column("gradient"),
                    Column("smallest cosine", "+.4f"),
                    Column("norm ratios"),
                    Column("norm of ∂f/∂s", ".3f"),
                    Column("verdict"),
                ),
                tuple(
                    (
                        task,
                        seed,
                        age,
                        c.estimator,
                        c.min_cosine,
                        ", ".join(f"{t.norm_ratio:.3f}" for t in c.tensors),
                        c.contraction,
                        ", ".join(r.name for r in c.reasons) or "PASS",
                    )
                    for task, seed, age, c in certified
                ),
            ),
        ),
        figures=(
            Figure(
                "Held-out accuracy",
                "",
                "test accuracy, %",
                tuple(figure),
                bars=True,
                lines={
                    f"chance, {t}": v.chance_percent
                    for t in tasks_of(context.level)
                    if isinstance(v := values[f"{t}_ep_accuracy"], Accuracy)
                },
            ),
        ),
    )


def _means(both: dict[str, Accuracy]) -> tuple[float, ...]:
    return both["backprop"].mean, both["ep"].mean


def _row(
    task: str, method: str, accuracy: Accuracy, gap: float | None, p: float | None
) -> tuple[object, ...]:
    low, high = accuracy.interval
    return (
        task,
        method,
        accuracy.mean,
        f"{low:.1f} to {high:.1f}",
        accuracy.chance_percent,
        ", ".join(f"{s:.1f}" for s in accuracy.scores),
        gap,
        p,
    )


def _train(
    context: Context, task: str, model: str, seed: int, chosen: TaskSettings
) -> tuple[Trained, float, list[tuple[str, Certificate]]]:
    """A benchmark run, the largest change of any of its input weights, and its certificates."""
    control: Control | None = "no-nudge" if context.sabotaged("nudge removed") else None
    data = context.data(task, seed)
    name = "ep" if model == "ep" else "backprop"
    benchmark = Run(task, name, seed, chosen, False, control)  # type: ignore[arg-type]
    torch.manual_seed(seed)
    net = build(benchmark, data, chosen.model(benchmark.model))
    if model == "ep" and context.sabotaged("wrong sign"):
        net.gradient = WrongSign(net.gradient)  # type: ignore[arg-type, assignment]
    first = next(net.parameters())
    before = first.detach().clone()
    tensors, certificates = load(context, task, seed), []

    def look(age: str) -> None:
        if isinstance(net, EquilibriumModel):
            certificates.append((age, certify(net, tensors.x[:BATCH], tensors.y[:BATCH])))

    look("before training")
    trained = train(net, tensors, chosen.training(benchmark.model, seed))
    look("after training")
    return trained, float((first.detach() - before).abs().max()), certificates


def bounds(level: Level) -> tuple[Bound, ...]:
    listed = [
        above("hidden_change", 1e-3, "largest change of an input weight during training"),
        at_least(
            "min_cosine", 0.99, "smallest cosine of a certificate at the settings trained with"
        ),
        at_most("norm_error", 0.05, "largest error of a gradient's norm at these settings"),
        at_most("refused", 0, "certificates refused at these settings"),
    ]
    for task in tasks_of(level):
        listed += [
            above_chance(f"{task}_backprop_accuracy", f"{task}: accuracy of backprop, %"),
            above_chance(f"{task}_ep_accuracy", f"{task}: accuracy of EqProp, %"),
            at_least(f"{task}_ep_accuracy", LEAST[task], f"{task}: accuracy of EqProp, %"),
            equivalent(f"{task}_gap", MARGIN, f"{task}: EqProp minus backprop, points"),
            at_least(f"{task}_gap", -1.0, f"{task}: EqProp minus backprop, points", required=False),
        ]
    return tuple(listed)


TRACK = Track(
    number=2,
    title="EqProp vs Backprop Parity",
    claim=f"EqProp's accuracy is equivalent to backpropagation's within {MARGIN:g} points, both "
    "are far above chance, and the gradients it was trained by are certified.",
    experiment="Train networks of equal size with backprop and EqProp on the same real data and "
    "seeds; two one-sided paired t-tests on the difference.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("shuffled labels", "both train on labels that mean nothing: parity at chance"),
        Sabotage("nudge removed", "EqProp's nudged phases relax without a nudge"),
        Sabotage("wrong sign", "EqProp's gradient points uphill"),
    ),
    statements=(
        "On digits EqProp reached {digits_ep_accuracy} and backprop {digits_backprop_accuracy}; "
        "EqProp minus backprop is {digits_gap}.",
        "In {certificates} certificates at the settings the networks are trained with, before and "
        "after training, the smallest cosine was {min_cosine:.4f} and the largest error of a norm "
        "{norm_error:.1%}; {refused} were refused.",
        "In every EqProp network the input weight that moved most moved by {hidden_change:.3f} or "
        "more; without a nudge none moves.",
    ),
    cost=15,
)
