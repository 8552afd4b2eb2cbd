"""Track 11: deep stacks learn, certified, and every layer takes part."""

from __future__ import annotations

from toreqprop.certificate import certify
from toreqprop.training import TrainingConfig
from toreqprop.verify.deep_stacks import deep, in_double
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
from toreqprop.verify.networks import load, train
from toreqprop.verify.probes import mean
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, above_chance, at_least, at_most, below

CERTIFIED = 4
RATE = 5e-3
"""Of 0.0025, 0.005, 0.01, 0.03 and 0.06 the one with which sixty-four layers learnt best, on
training rows held out, from other seeds than the track's."""


@plantable
def run(context: Context) -> Measurements:
    depths = context.level.pick((2, 64), (2, 16, 64), (1, 2, 4, 8, 16, 32, 64))
    rows_used, epochs = context.level.pick((480, 3), (640, 3), (640, 3))
    scores: dict[int, list[Accuracy]] = {d: [] for d in depths}
    cosines, errors, factors, moved, rows = [], [], [], [], []
    for seed in context.seeds[:1] if context.level.name == "quick" else context.seeds:
        data = in_double(load(context, "digits", seed), rows_used)
        for depth in depths:
            context.report(f"{depth} layers, seed {seed}")
            # As exact as certificates ask for, and no more: training time is passes.
            model = deep(data, depth, seed, tol=1e-4)
            if context.sabotaged("lower half frozen"):
                for layer in list(model.layers)[: max(1, depth // 2)]:
                    layer.requires_grad_(False)
            before = [p.detach().clone() for p in model.layers.parameters()]
            config = TrainingConfig(epochs=epochs, learning_rate=RATE, batch_size=32, seed=seed)
            trained = train(model, data, config)
            scores[depth].append(trained.accuracy())
            after = list(model.layers.parameters())
            change = min(float((a.detach() - b).norm()) for a, b in zip(after, before, strict=True))
            found = certify(model, data.x[:CERTIFIED], data.y[:CERTIFIED])
            cosines.append(found.min_cosine)
            errors.append(max(abs(t.norm_ratio - 1) for t in found.tensors))
            factors.append(model.lipschitz())
            moved.append(change)
            last = trained.history.epochs[-1]
            rows.append(
                (seed, depth, trained.percent, factors[-1], cosines[-1], change,
                 last.free_steps, last.nudged_steps)
            )  # fmt: skip
    deepest = depths[-1]
    return Measurements(
        {
            "shallow_accuracy": pooled(scores[depths[0]]),
            "deep_accuracy": pooled(scores[deepest]),
            "deepest": deepest,
            "min_cosine": min(cosines),
            "norm_error": max(errors),
            "lipschitz": max(factors),
            "least_change": min(moved),
        },
        tables=(
            Table(
                f"After {epochs} epochs on {rows_used} digits: smallest cosine of any tensor, the "
                "least any tensor moved, passes of the last epoch",
                (
                    Column("seed", "d"), Column("layers", "d"), Column("test accuracy, %", ".1f"),
                    Column("certified L", ".4f"), Column("cosine", ".5f"),
                    Column("least change", ".1e"), Column("free passes", ".1f"),
                    Column("nudged passes", ".1f"),
                ),
                tuple(rows),
            ),
        ),
        figures=(
            Figure(
                "Test accuracy against depth",
                "layers",
                "test accuracy, %",
                (
                    Series(
                        "EP", depths, tuple(mean(pooled(scores[d]).scores) for d in depths)
                    ),
                ),
                lines={"chance": pooled(scores[deepest]).chance_percent},
                log_x=True,
            ),
        ),
    )  # fmt: skip


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        above_chance("deep_accuracy", "test accuracy of the deepest stack, %"),
        at_least("deep_accuracy", 60.0, "the same, %"),
        above_chance("shallow_accuracy", "test accuracy of the shallowest stack, %"),
        at_least("min_cosine", 0.99, "smallest cosine of any tensor after training"),
        at_most("norm_error", 0.05, "largest error of a gradient's norm after training"),
        below("lipschitz", 1.0, "largest certified contraction factor after training"),
        at_least("least_change", 1e-3, "least change of any tensor in training"),
        at_least("deepest", 64, "layers of the deepest stack"),
    )


TRACK = Track(
    number=11,
    title="Deep Training",
    claim="Stacks as deep as sixty-four layers learn digits by EP, stay certified, and "
    "every tensor of every layer moves along the exact gradient.",
    experiment="HopfieldMLP.deep of growing depth trained on a few hundred digits; accuracy, "
    "certificates and the change of every tensor after training.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("lower half frozen", "the lower half of the layers does not learn"),
        Sabotage("upper matrices x0.7", "gradients of matrices between layers are too small"),
        Sabotage("shuffled labels", "networks train on labels that mean nothing"),
    ),
    statements=(
        "Accuracy of the shallowest stack {shallow_accuracy}, of {deepest} layers {deep_accuracy}; "
        "smallest cosine after training {min_cosine:.5f}, largest certified factor "
        "{lipschitz:.4f}; every tensor moved by {least_change:.1e} or more.",
    ),
    cost=8,
)
