"""Track 57: what EP costs and gives against backpropagation, on one page."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop.bench.memory_probe import peaks
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
    Value,
    pooled,
)
from toreqprop.verify.networks import Split, baseline, load, looped, train
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, above, above_chance, at_least, at_most

HIDDEN = 128
NOISES = (0.5, 1.0, 2.0)
"""Standard deviation of noise added to every standardised pixel, and of that added to every hidden
neuron."""

NAMES = {"backprop": "backprop", "ep": "EP"}


def run(context: Context) -> Measurements:
    epochs = context.level.pick(8, 20, 20)
    clean: dict[str, list[Accuracy]] = {"backprop": [], "ep": []}
    noisy: dict[tuple[str, str, float], list[float]] = {}
    parameters: dict[str, int] = {}
    ratios, seconds = [], {"backprop": [0.0], "ep": [0.0]}
    for seed in context.seeds:
        data = load(context, "digits", seed)
        for name in clean:
            context.report(f"{NAMES[name]}, seed {seed}")
            model: nn.Module = (
                looped(data, HIDDEN, seed) if name == "ep" else baseline(data, HIDDEN, seed)
            )
            trained = train(model, data, TrainingConfig(epochs=epochs, seed=seed))
            clean[name].append(trained.accuracy())
            parameters[name] = sum(p.numel() for p in model.parameters())
            for kind in ("input", "hidden"):
                for size in NOISES:
                    score = _score_with_noise(model, data, kind, size, seed)
                    noisy.setdefault((name, kind, size), []).append(score)
        context.report("time of a training step")
        best = _step_seconds(data, seed, context.level.pick(60, 200, 400))
        ratios.append(best["ep"] / best["backprop"])
        for name, value in best.items():
            seconds[name].append(value)
    context.report("memory of a training step")
    memory = {name: peaks(NAMES[name], 512, (30,))[0] for name in clean}
    both = {name: pooled(parts) for name, parts in clean.items()}
    pair = Paired(both["ep"].scores, both["backprop"].scores)
    values: dict[str, Value] = {
        "ep_accuracy": both["ep"],
        "backprop_accuracy": both["backprop"],
        "gap": pair,
        "parameter_ratio": parameters["ep"] / parameters["backprop"],
    }
    robust: list[tuple[Any, ...]] = []
    for kind in ("input", "hidden"):
        for size in NOISES:
            means = {n: _mean(noisy[n, kind, size]) for n in clean}
            robust.append((kind, size, means["backprop"], means["ep"], _gain(means)))
            values[f"{kind}_gain_{size:g}"] = _gain(means)
    if context.sabotaged("a cost left out"):
        ratios = [float("nan")]
    timings = {
        "time_ratio": sorted(ratios)[len(ratios) // 2],
        "memory_ratio": memory["ep"] / memory["backprop"],
    }
    middle = {n: 1e3 * sorted(s[1:])[len(s[1:]) // 2] for n, s in seconds.items()}
    return Measurements(
        values,
        timings=timings,
        tables=(
            Table(
                "Costs: digits, batch 64, hidden 128 (memory: batch 64, hidden 512, 30 steps)",
                (
                    Column("Figure"),
                    Column("backprop", ".3g"),
                    Column("EP", ".3g"),
                    Column("EP / backprop", ".2f"),
                ),
                (
                    ("CPU ms per training step", middle["backprop"], middle["ep"],
                     timings["time_ratio"]),
                    ("peak MB of a training step", memory["backprop"], memory["ep"],
                     timings["memory_ratio"]),
                ),
                volatile=True,
            ),
            Table(
                f"Accuracy on clean data after {epochs} epochs",
                (
                    Column("Method"),
                    Column("parameters", "d"),
                    Column("test accuracy, %", ".2f"),
                    Column("by seed, %"),
                    Column("chance, %", ".1f"),
                ),
                tuple(
                    (
                        NAMES[n],
                        parameters[n],
                        both[n].mean,
                        ", ".join(f"{s:.1f}" for s in both[n].scores),
                        both[n].chance_percent,
                    )
                    for n in clean
                ),
            ),
            Table(
                "Robustness: mean test accuracy with Gaussian noise on the input, or once on the "
                "hidden neurons: of the first layer for backprop, of the equilibrium for EP, "
                "which then relaxes 10 more steps",
                (
                    Column("noise on"),
                    Column("std", "g"),
                    Column("backprop, %", ".1f"),
                    Column("EP, %", ".1f"),
                    Column("EP minus backprop", "+.1f"),
                ),
                tuple(robust),
            ),
        ),
        figures=(
            Figure(
                "Test accuracy with noise on the hidden neurons",
                "standard deviation of the noise",
                "test accuracy, %",
                tuple(
                    Series(
                        NAMES[n],
                        (0.0, *NOISES),
                        (both[n].mean, *(_mean(noisy[n, "hidden", s]) for s in NOISES)),
                    )
                    for n in clean
                ),
                lines={"chance": both["ep"].chance_percent},
            ),
            Figure(
                "Test accuracy with noise on the input",
                "standard deviation of the noise",
                "test accuracy, %",
                tuple(
                    Series(
                        NAMES[n],
                        (0.0, *NOISES),
                        (both[n].mean, *(_mean(noisy[n, "input", s]) for s in NOISES)),
                    )
                    for n in clean
                ),
                lines={"chance": both["ep"].chance_percent},
            ),
        ),
    )  # fmt: skip


def _mean(scores: list[float]) -> float:
    return sum(scores) / len(scores)


def _gain(means: dict[str, float]) -> float:
    return means["ep"] - means["backprop"]


def _step_seconds(data: Split, seed: int, rounds: int) -> dict[str, float]:
    """The middle CPU time of a training step, both methods in turn: what else the machine does
    hits both alike."""
    models: dict[str, nn.Module] = {
        "backprop": baseline(data, HIDDEN, seed),
        "ep": looped(data, HIDDEN, seed),
    }
    optimizers = {n: torch.optim.Adam(m.parameters(), lr=1e-3) for n, m in models.items()}
    times: dict[str, list[float]] = {"backprop": [], "ep": []}
    generator = torch.Generator().manual_seed(seed)
    for _ in range(rounds):
        batch = torch.randint(len(data.x), (64,), generator=generator)
        for name, model in models.items():
            started = time.process_time()
            optimizers[name].zero_grad()
            F.cross_entropy(model(data.x[batch]), data.y[batch]).backward()
            optimizers[name].step()
            times[name].append(time.process_time() - started)
    # The first rounds pay for what is compiled or allocated once.
    return {n: sorted(t[rounds // 5 :])[(rounds - rounds // 5) // 2] for n, t in times.items()}


@torch.no_grad()
def _score_with_noise(model: nn.Module, data: Split, kind: str, size: float, seed: int) -> float:
    generator = torch.Generator().manual_seed(seed)

    def noise(like: Tensor) -> Tensor:
        return size * torch.randn(like.shape, generator=generator)

    if kind == "input":
        output = model(data.test_x + noise(data.test_x))
    elif isinstance(model, LoopedMLP):
        params = model.system_parameters()
        drive = F.linear(data.test_x, params[0], params[1])
        state = model.equilibrium(data.test_x).state[0]
        state = state + noise(state)
        for _ in range(10):
            state = torch.tanh(drive + state @ params[2])
        output = model.readout_from((state,))
    else:
        assert isinstance(model, BackpropMLP)
        hidden = model.layers[:2](data.test_x)
        output = model.layers[2:](hidden + noise(hidden))
    return 100 * float((output.argmax(1) == data.test_y).double().mean())


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        above_chance("ep_accuracy", "test accuracy of EP, %"),
        above_chance("backprop_accuracy", "test accuracy of backprop, %"),
        at_least("gap", -2.0, "accuracy, EP minus backprop, points"),
        above("time_ratio", 0.0, "CPU time of a training step, EP over backprop, is known"),
        at_most("time_ratio", 4.0, "CPU time of a training step, EP over backprop"),
        above("memory_ratio", 0.0, "memory of a training step, EP over backprop, is known"),
        at_most("memory_ratio", 6.0, "memory of a training step, EP over backprop"),
        at_least("hidden_gain_2", 0.0, "accuracy gained under the largest hidden noise, points"),
        at_least("input_gain_2", -5.0, "accuracy gained under the largest input noise, points"),
    )  # fmt: skip


TRACK = Track(
    number=57,
    title="Honest Trade-off",
    claim="At equal size and accuracy EP pays in time and memory per step, and gives a network "
    "that corrects noise on its own neurons. All four sides are measured, whichever way they fall.",
    experiment="Train both on digits; time training steps in turn, measure peak memory, test on "
    "clean data, on noisy inputs and with noise on the hidden neurons.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("shuffled labels", "both methods train on labels that mean nothing"),
        Sabotage("a cost left out", "the time of a training step is not a number"),
    ),
    statements=(
        "A training step of EP took {time_ratio:.2f} times the CPU time of backprop's and "
        "{memory_ratio:.2f} times its memory, with {parameter_ratio:.3f} times the parameters.",
        "Clean accuracy: EP {ep_accuracy}, backprop {backprop_accuracy}; EP minus backprop {gap}.",
        "With noise of standard deviation 1 on the hidden neurons EP was {hidden_gain_1:+.1f} "
        "points from backprop, with the same noise on the input {input_gain_1:+.1f} points.",
    ),
    cost=30,
)
