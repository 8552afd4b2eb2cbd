"""Track 15: what a kernel trains is what the reference trains."""

from __future__ import annotations

from typing import Any

import torch

from toreqprop.kernels import KERNELS, compiled_available
from toreqprop.training import TrainingConfig
from toreqprop.verify.faults import faulty_kernels
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Column, Figure, Measurements, Series, Table, pooled
from toreqprop.verify.mutations import plantable
from toreqprop.verify.networks import Split, Trained, load, looped, train
from toreqprop.verify.plain_training import match
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, above_chance, at_least, at_most


@plantable
def run(context: Context) -> Measurements:
    hidden, epochs = context.level.pick((32, 2), (64, 5), (128, 10))
    seeds = context.seeds
    names = [k for k in KERNELS if k != "numba" or compiled_available()]
    rows: list[tuple[Any, ...]] = []
    weights, outputs, runs, curves = [0.0], [0.0], [], []
    for seed in seeds:
        data = load(context, "digits", seed)
        reference, states = _train(context, data, "numpy", hidden, epochs, seed)
        for name in names:
            context.report(f"{name}, seed {seed}")
            found, mine = (
                (reference, states)
                if name == "numpy"
                else _train(context, data, name, hidden, epochs, seed)
            )
            by_step = [float((a - b).abs().max()) for a, b in zip(mine, states, strict=True)]
            answers = _outputs(found, data)
            differs = float((answers - _outputs(reference, data)).abs().max())
            rows.append((name, seed, found.percent, max(by_step), by_step[-1], differs))
            runs.append(found)
            if name != "numpy":
                weights.append(max(by_step))
                outputs.append(differs)
                if seed == context.seed:
                    curves.append((name, by_step))
    context.report("against training in NumPy")
    matched = [match(load(context, "digits", seed), seed) for seed in seeds]
    return Measurements(
        {
            "plain_weight": max(m.weight for m in matched),
            "plain_missing": max(m.missing for m in matched),
            "plain_answers": max(m.answers for m in matched),
            "plain_steps": sum(m.steps for m in matched),
            "kernels": len(names),
            "weight_difference": max(weights),
            "output_difference": max(outputs),
            "accuracy": pooled([r.accuracy() for r in runs]),
            "answer_spread": _spread(runs, len(names)),
            "training_steps": len(states),
        },
        tables=(
            Table(
                f"{epochs} epochs of digits in float64, hidden {hidden}; differences to the numpy "
                "kernel",
                (
                    Column("Kernel"),
                    Column("seed", "d"),
                    Column("test accuracy, %", ".2f"),
                    Column("W_rec, worst step", ".1e"),
                    Column("W_rec, last step", ".1e"),
                    Column("test outputs", ".1e"),
                ),
                tuple(rows),
            ),
        ),
        figures=(
            Figure(
                "Recurrent weights against those trained by the numpy kernel",
                "training step",
                "largest difference",
                tuple(
                    Series(name, tuple(range(1, len(c) + 1)), tuple(max(e, 1e-18) for e in c))
                    for name, c in curves
                ),
                log_y=True,
            ),
        ),
    )


def _train(
    context: Context, data: Split, kernel: str, hidden: int, epochs: int, seed: int
) -> tuple[Trained, list[torch.Tensor]]:
    model = looped(data, hidden, seed, kernel=kernel, bound="proven").double()
    states: list[torch.Tensor] = []
    doubled = Split(
        data.x.double(), data.y, data.test_x.double(), data.test_y, data.features, data.classes,
        data.chance,
    )  # fmt: skip
    # Plain gradient descent would do; Adam divides by tiny moments and amplifies rounding, which
    # is why the bound is far above that of a single step.
    config = TrainingConfig(epochs=epochs, seed=seed)
    fault = "sign of the nudge" if context.sabotaged("sign of the nudge") else None
    if context.sabotaged("one step less"):
        fault = "one step less"
        model.max_steps = 3
    with faulty_kernels(fault):
        trained = train(
            model,
            doubled,
            config,
            on_step=lambda net: states.append(model.recurrent.weight.detach().clone()),
        )
    return trained, states


def _outputs(trained: Trained, data: Split) -> torch.Tensor:
    with torch.no_grad():
        return trained.model(data.test_x.double())


def _spread(runs: list[Trained], kernels: int) -> float:
    groups = [runs[k : k + kernels] for k in range(0, len(runs), kernels)]
    return max(max(r.percent for r in g) - min(r.percent for r in g) for g in groups)


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        at_least("kernels", 2, "kernels compared"),
        at_most("weight_difference", 1e-10, "largest difference of a recurrent weight, any step"),
        at_most("output_difference", 1e-9, "largest difference of a test output"),
        at_most("answer_spread", 0.0, "difference of test accuracy between kernels, points"),
        at_most("plain_weight", 1e-12, "largest difference of a weight from training in NumPy"),
        at_most("plain_missing", 0, "steps too few or too many against training in NumPy"),
        at_most("plain_answers", 0, "test answers unlike those of the network trained in NumPy"),
        above_chance("accuracy", "test accuracy of all kernels, %"),
        # Twice and more what labels that mean nothing leave, which chance alone may let pass.
        at_least("accuracy", level.pick(50.0, 70.0, 80.0), "the same, %"),
    )


TRACK = Track(
    number=15,
    title="Kernels in Training",
    claim="Training with any kernel gives the weights, outputs and accuracy that training with "
    "the NumPy reference gives, and the training loop is the one written out in NumPy.",
    experiment="Train the same network from the same weights with each kernel in float64; compare "
    "the recurrent weights after every step, and the outputs on the test data.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("sign of the nudge", "the faster kernels nudge the wrong way"),
        Sabotage("one step less", "relaxations stop after 3 steps, in the faster kernels after 2"),
        Sabotage("last batch dropped", "an epoch leaves out its last, smaller batch"),
        Sabotage("shuffled labels", "all kernels train on labels that mean nothing"),
    ),
    statements=(
        "Over {training_steps} training steps with {kernels} kernels, recurrent weights differed "
        "by at most {weight_difference:.1e}, test outputs by {output_difference:.1e} and accuracy "
        "by {answer_spread:.2f} points.",
        "Against shuffling, batches and AdamW written out in NumPy, weights differed by at most "
        "{plain_weight:.1e} over {plain_steps} steps, and {plain_answers} test answers.",
        "Accuracy of all runs together: {accuracy}.",
    ),
    cost=15,
)
