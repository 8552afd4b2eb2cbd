"""Track 19: settling, gradients and accuracy as the true norm goes from 0.5 to 1.5."""

from __future__ import annotations

import itertools
from collections import Counter

import torch

from toreqprop.energies import SpectralBall
from toreqprop.models import LoopedMLP
from toreqprop.solvers import FixedPoint
from toreqprop.training import TrainingConfig
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import (
    Accuracy,
    Column,
    Figure,
    Measurements,
    Series,
    Table,
    pooled,
)
from toreqprop.verify.mutations import plantable
from toreqprop.verify.networks import Split, load, looped, train
from toreqprop.verify.probes import error, gradients, mean, tight
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, above_chance, at_least, at_most

SAMPLES = 48


@plantable
def run(context: Context) -> Measurements:
    norms = context.level.pick(
        (0.5, 0.8, 0.95, 1.5), (0.5, 0.7, 0.9, 0.95, 1.1, 1.5),
        (0.5, 0.7, 0.9, 0.95, 1.05, 1.1, 1.3, 1.5),
    )  # fmt: skip
    hidden, epochs = context.level.pick((32, 3), (32, 4), (48, 5))
    measured: dict[float, list[tuple[float, float, float, float]]] = {r: [] for r in norms}
    scores: dict[float, list[Accuracy]] = {r: [] for r in norms}
    names: Counter[str] = Counter()
    for seed in context.seeds:
        data = load(context, "digits", seed)
        for norm in norms:
            context.report(f"norm {norm:g}, seed {seed}")
            model = _model(data, hidden, seed, norm)
            config = TrainingConfig(epochs=epochs, learning_rate=3e-3, seed=seed)
            scores[norm].append(train(model, data, config).accuracy(contrast=norm >= 1))
            if context.sabotaged("a norm twice too large"):
                for constraint in model.recurrent.constraints:
                    if isinstance(constraint, SpectralBall):
                        constraint.radius = 2 * norm
            measured[norm].append((model.lipschitz(), *_probe(model, data, names)))
    rows, means = [], {}
    for norm in norms:
        found = [mean(column) for column in zip(*measured[norm], strict=True)]
        means[norm] = found
        rows.append((norm, *found, pooled(scores[norm]).mean))
    below, above = [r for r in norms if r < 1], [r for r in norms if r > 1]
    steps = [means[r][2] for r in below]
    return Measurements(
        {
            "settled_below": min(m[1] for r in below for m in measured[r]),
            "error_below": max(m[3] for r in below for m in measured[r]),
            "norm_off": max(abs(m[0] / r - 1) for r in norms for m in measured[r]),
            "steps_growth": steps[-1] / steps[0],
            "steps_rise": min(b - a for a, b in itertools.pairwise(steps)),
            "settled_at_top": means[above[-1]][1],
            "error_at_top": means[above[-1]][3],
            "cycles_named": names["CYCLING"],
            "accuracy": pooled([s for r in below for s in scores[r]]),
            "top_accuracy": pooled(scores[above[-1]]),
        },
        tables=(
            Table(
                "Means over seeds: true norm, share of test samples that settle within 100 plain "
                "steps, steps of the free phase, relative error of EP's gradient against EP at "
                "rest to rounding, test accuracy",
                (
                    Column("norm asked for", "g"), Column("true norm", ".4f"),
                    Column("settle", ".1%"), Column("steps", ".1f"), Column("error", ".1e"),
                    Column("accuracy, %", ".1f"),
                ),
                tuple(rows),
            ),
        ),
        figures=(
            Figure(
                "Across the edge of stability",
                "true norm of the recurrent matrix",
                "%",
                (
                    Series("samples that settle", norms, tuple(100 * means[r][1] for r in norms)),
                    Series("test accuracy", norms, tuple(row[-1] for row in rows)),
                ),
                lines={"chance": 100 * scores[norms[0]][0].chance},
            ),
        ),
    )  # fmt: skip


def _model(data: Split, hidden: int, seed: int, norm: float) -> LoopedMLP:
    model = looped(data, hidden, seed, radius=norm, bound="exact", tol=1e-4, max_steps=100)
    with torch.no_grad():
        # A loop that inhibits, outside of its ball: of excitation beyond one plain iteration still
        # finds some equilibrium, of inhibition it does not.
        drawn = model.recurrent.raw.clone()
        model.recurrent.raw.copy_(-1000 * drawn @ drawn.mT)
    return model


def _probe(model: LoopedMLP, data: Split, names: Counter[str]) -> tuple[float, float, float]:
    """Share of samples that settle, mean steps, and the gradient's error."""
    x, y = data.test_x[:SAMPLES], data.test_y[:SAMPLES]
    settled, steps = [], []
    with torch.no_grad():
        for row in x.split(1):
            found = model.equilibrium(row)
            names[found.status.name] += 1
            settled.append(float(found.converged))
            steps.append(float(found.steps))
    exacter = tight(model)
    exacter.solver = FixedPoint(damping=0.5, tol=1e-11, max_steps=3000)
    wanted = gradients(exacter, x.double(), y)
    return mean(settled), mean(steps), error(gradients(model, x, y), wanted)


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        at_least("settled_below", 1.0, "share of samples that settle at norms below one"),
        at_most("error_below", 0.05, "error of EP's gradient at norms below one"),
        at_most("norm_off", 1e-3, "deviation of the true norm from the one asked for"),
        at_least("steps_rise", 0.0, "growth of steps from one norm below one to the next"),
        at_least("steps_growth", 1.5, "steps at the largest norm below one over the smallest"),
        at_most("settled_at_top", 0.9, "share of samples that settle at a norm of 1.5"),
        at_least("error_at_top", 0.1, "error of EP's gradient at a norm of 1.5"),
        at_least("cycles_named", 1, "relaxations called a cycle"),
        above_chance("accuracy", "test accuracy at norms below one, %"),
        at_least("accuracy", level.pick(80.0, 82.0, 85.0), "the same, %"),
    )


TRACK = Track(
    number=19,
    title="Criticality",
    claim="Below a true norm of one every sample settles, in more steps the nearer it is, and the "
    "gradient is right; above it plain iteration of a loop that inhibits swings, and the "
    "gradient is lost.",
    experiment="LoopedMLP trained on digits at true norms from 0.5 to 1.5 with plain iteration: "
    "who settles, in how many steps, and the gradient against EP at rest.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("a norm twice too large", "the ball lets twice the norm through after training"),
        Sabotage("cycles are not named", "a relaxation that swings is told to take more steps"),
        Sabotage("shuffled labels", "networks train on labels that mean nothing"),
    ),
    statements=(
        "Below one {settled_below:.0%} of the samples settled and the gradient's error was "
        "{error_below:.1e} or less; steps grew {steps_growth:.1f}-fold. At 1.5 "
        "{settled_at_top:.0%} settled, the error was {error_at_top:.1e}, and "
        "{cycles_named} relaxations were called cycles.",
        "Accuracy below one {accuracy}, at the largest norm {top_accuracy}.",
    ),
    cost=5,
)
