"""Track 36: does the energy at rest tell strange inputs from familiar ones?"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from toreqprop.evidence.statistics import summarise
from toreqprop.models import LoopedMLP
from toreqprop.training import TrainingConfig
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import (
    Column,
    Figure,
    Measurements,
    Paired,
    Series,
    Table,
    Value,
    pooled,
)
from toreqprop.verify.networks import looped, split, train
from toreqprop.verify.probes import mean
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, above_chance, at_least, at_most

SCORES = ("energy", "energy per drive", "max-softmax")
STRANGE = ("Fashion", "noise", "permuted MNIST")


def run(context: Context) -> Measurements:
    hidden, epochs, count = context.level.pick((32, 1, 500), (64, 2, 1500), (96, 3, 3000))
    found: dict[tuple[str, str], list[float]] = {(k, s): [] for k in STRANGE for s in SCORES}
    accuracies, shuffled = [], []
    seeds = context.seeds[:2] if context.level.name == "quick" else context.seeds
    for seed in seeds:
        context.report(f"training on MNIST, seed {seed}")
        raw, other = context.data("mnist", seed), context.data("fashion", seed)
        labels = seed if context.sabotaged("shuffled labels") else None
        data = split(raw, shuffle_labels_by=labels)
        model = looped(data, hidden, seed, radius=0.9, bound="tight")
        config = TrainingConfig(epochs=epochs, learning_rate=2e-3, seed=seed)
        accuracies.append(train(model, data, config).accuracy())
        generator = torch.Generator().manual_seed(seed)
        known = data.test_x[:count]
        foreign = raw.standardiser(other.standardiser.invert(other.test_x[:count]))
        mixed = torch.randperm(data.features, generator=generator)
        inputs = {
            "Fashion": torch.from_numpy(foreign),
            # Pixels of the same mean and deviation, each on its own.
            "noise": torch.randn(known.shape, generator=generator) * known.std() + known.mean(),
            "permuted MNIST": known[:, mixed],
        }
        if context.sabotaged("strange inputs are familiar"):
            inputs = dict.fromkeys(STRANGE, data.test_x[count : 2 * count])
        familiar = _scores(model, known)
        for kind, x in inputs.items():
            strange = _scores(model, x)
            for name in SCORES:
                found[kind, name].append(100 * auroc(strange[name], familiar[name]))
        halves = familiar["max-softmax"].chunk(2)
        shuffled.append(100 * auroc(*halves))
    values: dict[str, Value] = {"accuracy": pooled(accuracies), "null": mean(shuffled)}
    for kind in STRANGE:
        key = kind.split()[0].lower()
        softmax, energy = found[kind, "max-softmax"], found[kind, "energy"]
        values[f"{key}_softmax"] = mean(softmax)
        values[f"{key}_energy"] = mean(energy)
        values[f"{key}_softmax_low"] = _lower_end(softmax, count)
        values[f"{key}_gap"] = Paired(tuple(energy), tuple(softmax))
    return Measurements(
        values,
        tables=(
            Table(
                f"AUROC in percent, {count} familiar against {count} strange inputs (50 is chance, "
                "below 50 the score points the wrong way): mean and 95 % interval over seeds",
                (
                    Column("strange inputs"), Column("score"), Column("AUROC, %", ".1f"),
                    Column("low", ".1f"), Column("high", ".1f"),
                ),
                tuple(
                    (kind, name, (s := summarise(parts)).mean, s.low, s.high)
                    for (kind, name), parts in found.items()
                ),
            ),
        ),
        figures=(
            Figure(
                "AUROC by score, %",
                "",
                "AUROC, %",
                tuple(
                    Series(kind, SCORES, tuple(mean(found[kind, s]) for s in SCORES))
                    for kind in STRANGE
                ),
                bars=True,
                lines={"chance": 50.0},
            ),
        ),
    )  # fmt: skip


@torch.no_grad()
def _scores(model: LoopedMLP, x: Tensor) -> dict[str, Tensor]:
    """Larger means stranger: the energy at rest, the same over the drive's size, and one minus the
    largest probability."""
    state = model.equilibrium(x).state
    params = model.system_parameters()
    energy = model.field.energy(state, x, params)  # type: ignore[attr-defined]
    drive = (x @ params[0].mT + params[1]).norm(dim=1)
    confidence = model.readout_from(state).softmax(1).amax(1)
    return {"energy": energy, "energy per drive": energy / drive, "max-softmax": 1 - confidence}


def auroc(strange: Tensor, familiar: Tensor) -> float:
    """The chance that a strange input scores above a familiar one, ties counting half."""
    both = np.concatenate([strange.double().numpy(), familiar.double().numpy()])
    _, inverse, counts = np.unique(both, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[inverse]
    n, m = len(strange), len(familiar)
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * m))


def _lower_end(found: list[float], count: int) -> float:
    """Of the 95 % interval in percent: Hanley and McNeil's over all pairs of inputs, and where
    there are five seeds the t-interval's over them, whichever is lower."""
    area = mean(found) / 100
    ends = area / (2 - area) - area**2, 2 * area**2 / (1 + area) - area**2
    total = count * len(found)
    variance = (area * (1 - area) + (total - 1) * sum(ends)) / total**2
    low = 100 * (area - 1.96 * variance**0.5)
    over_seeds = summarise(found).low
    return low if over_seeds is None or len(found) < 5 else min(low, over_seeds)


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        above_chance("accuracy", "test accuracy on MNIST, %"),
        at_least("fashion_softmax_low", 70.0, "AUROC of max-softmax against Fashion, lower end, %"),
        at_least("noise_softmax_low", 70.0, "the same against noise, %"),
        at_least("permuted_softmax_low", 70.0, "the same against permuted digits, %"),
        at_least("noise_energy", 95.0, "AUROC of the energy against noise, %"),
        at_least("permuted_energy", 95.0, "the same against permuted digits, %"),
        at_most("fashion_energy", 65.0, "the same against Fashion, %"),
        at_most("fashion_gap", -10.0, "AUROC of energy minus max-softmax, Fashion, points"),
        at_most("null", 58.0, "AUROC of familiar against familiar, %"),
        at_least("null", 42.0, "AUROC of familiar against familiar, %"),
    )


TRACK = Track(
    number=36,
    title="Out of Distribution",
    claim="The energy at rest finds inputs without the digits' structure (noise, permuted pixels) "
    "almost without fail, and is blind to Fashion, which drives the network as strongly as digits "
    "do; max-softmax sees all three.",
    experiment="LoopedMLP trained on MNIST; AUROC of energy at rest and max-softmax for Fashion, "
    "noise and permuted digits, standardised as MNIST is, with intervals over seeds.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("strange inputs are familiar", "all inputs are MNIST's own"),
        Sabotage("shuffled labels", "networks train on labels that mean nothing"),
    ),
    statements=(
        "Against Fashion max-softmax had an AUROC of {fashion_softmax:.1f} %, the energy "
        "{fashion_energy:.1f} % (difference {fashion_gap}); against noise {noise_softmax:.1f} and "
        "{noise_energy:.1f} %, against permuted digits {permuted_softmax:.1f} and "
        "{permuted_energy:.1f} %. Accuracy {accuracy}.",
    ),
    cost=6,
)
