"""Track 17: noise at every step of every phase, and a nudge chosen beforehand."""

from __future__ import annotations

from dataclasses import replace

import torch

from toreqprop.bench.hardware.methods import BUDGET_SAMPLES, Recipe, Split
from toreqprop.energies.devices import Device
from toreqprop.hardware.budget import budget
from toreqprop.hardware.limits import exact_gradient, flat, gradient
from toreqprop.models import HopfieldMLP, OnChip
from toreqprop.private_generator import noise_from
from toreqprop.verify.devices import Around, learned, other_device, recipe_for, scored
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Accuracy, Column, Measurements, Paired, Table, pooled
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, at_least, at_most

CHIP = Device(read_noise=0.2, average=32, settle=15)
DRAWS = 12
"""Gradients whose error is held against the prediction."""


def run(context: Context) -> Measurements:
    recipe = recipe_for(context.level)
    device = replace(CHIP, average=context.level.pick(16, 32, 32))
    frozen = context.sabotaged("layer 1 frozen")

    def watched(chip: OnChip) -> None:
        if context.sabotaged("noise only in the free phase"):
            chip.solver = Around(inner=chip.solver, change=other_device(read_noise=0.0))

    parts: dict[str, list[Accuracy]] = {"noisy": [], "clean": []}
    ratios, betas = [], []
    for seed in context.seeds:
        context.report(f"seed {seed}")
        chip, data = learned(device, recipe, seed, frozen=frozen, around=watched)
        parts["noisy"].append(scored(chip, data, seed))
        plain, _ = learned(Device(), recipe, seed)
        parts["clean"].append(scored(plain, data, seed))
        betas.append(chip.gradient.beta)  # type: ignore[attr-defined]
        ratios.append(_measured_over_predicted(chip, recipe.network(seed), data, recipe, seed))
    noisy, clean = pooled(parts["noisy"]), pooled(parts["clean"])
    return Measurements(
        {
            "noisy": noisy,
            "clean": clean,
            "gap": Paired(noisy.scores, clean.scores),
            "lost": clean.mean - noisy.mean,
            "largest_ratio": max(ratios),
            "smallest_ratio": min(ratios),
            "beta": sum(betas) / len(betas),
        },
        tables=(
            Table(
                "Test accuracy on digits, %, and error of one gradient over its prediction",
                (
                    Column("Seed", "d"),
                    Column("noisy", ".1f"),
                    Column("clean", ".1f"),
                    Column("measured / predicted", ".2f"),
                ),
                tuple(zip(context.seeds, noisy.scores, clean.scores, ratios, strict=True)),
            ),
        ),
    )


def _measured_over_predicted(
    chip: OnChip, fresh: HopfieldMLP, data: Split, recipe: Recipe, seed: int
) -> float:
    """Of an untrained network: the rms error of its gradients on the chip over the budget's."""
    untrained = OnChip(chip.device, fresh)
    few = data.x[:BUDGET_SAMPLES], data.y[:BUDGET_SAMPLES]
    expected = budget(untrained, *few, loss=recipe.loss)
    # A weak nudge: noise is most of the error.
    beta = expected.beta / 3
    untrained.gradient = replace(chip.gradient, beta=beta)  # type: ignore[type-var]
    exact = flat(exact_gradient(untrained, *few, recipe.loss))
    untrained.solver = chip.solver
    with noise_from(torch.Generator().manual_seed(seed)):
        drawn = torch.stack([flat(gradient(untrained, *few, recipe.loss)) for _ in range(DRAWS)])
    error = float((drawn - exact).square().sum(1).mean().sqrt() / exact.norm())
    return error / expected.at(beta).error


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        at_least("noisy", level.pick(90.0, 94.0, 94.0), "test accuracy with noise of 0.2, %"),
        at_most("lost", level.pick(4.0, 1.5, 1.0), "points lost to a network without noise"),
        at_most("largest_ratio", 1.5, "error of a gradient over its prediction, largest"),
        at_least("smallest_ratio", 1 / 1.5, "error of a gradient over its prediction, smallest"),
    )


TRACK = Track(
    number=17,
    title="Analog Noise",
    claim="With noise of a fifth of the states' range at every step of every phase, averaged "
    "readings and the nudge that the budget predicts, EP learns as without noise; and the error "
    "of its gradient is the predicted one.",
    experiment="Digits, 64-32-10: every neuron read as s + 0.2·ξ by its neighbours and by the one "
    "who measures; β chosen before training from the noise alone.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("noise only in the free phase", "nudged phases are free of noise"),
        Sabotage("layer 1 frozen", "the first layer does not learn"),
    ),
    statements=(
        "Noisy {noisy}, clean {clean}: {gap}, with β {beta:.2f}. Measured error over predicted: "
        "{smallest_ratio:.2f} to {largest_ratio:.2f}.",
    ),
    cost=45,
)
