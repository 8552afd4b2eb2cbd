"""Track 4: a network whose weights have three values in every phase learns by EP."""

from __future__ import annotations

from toreqprop.energies.devices import Device, Ternary
from toreqprop.hardware.limits import exact_gradient, flat, gradient
from toreqprop.models import OnChip
from toreqprop.verify.devices import (
    Around,
    Levels,
    learned,
    other_weights,
    recipe_for,
    scored,
)
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Accuracy, Column, Measurements, Paired, Table, pooled
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, at_least, at_most

CHIP = Device(weights=Ternary())


def run(context: Context) -> Measurements:
    recipe, levels = recipe_for(context.level), Levels()
    frozen = context.sabotaged("layer 1 frozen")

    def watched(chip: OnChip) -> None:
        chip.solver = Around(inner=chip.solver, seen=levels)
        if context.sabotaged("quantiser bypassed in the nudged phase"):
            cheat = other_weights(chip.network.system_parameters)
            chip.solver = Around(inner=chip.solver, change=cheat)
            chip.on_failure = "ignore"  # the library itself would say that something is odd

    found: dict[str, list[Accuracy]] = {"ternary": [], "float": []}
    cosines = []
    for seed in context.seeds:
        context.report(f"seed {seed}")
        chip, data = learned(CHIP, recipe, seed, frozen=frozen, around=watched)
        found["ternary"].append(scored(chip, data, seed))
        plain, _ = learned(Device(), recipe, seed)
        found["float"].append(scored(plain, data, seed))
        few = data.x[:64], data.y[:64]
        chip.network.requires_grad_(True)
        exact = flat(exact_gradient(_unwrapped(chip), *few, recipe.loss))
        mine = flat(gradient(chip, *few, recipe.loss))
        cosines.append(float(mine @ exact / (mine.norm() * exact.norm())))
    ternary, whole = (pooled(found[name]) for name in ("ternary", "float"))
    return Measurements(
        {
            "ternary": ternary,
            "float": whole,
            "gap": Paired(ternary.scores, whole.scores),
            "lost": whole.mean - ternary.mean,
            "free_levels": levels.most["free"],
            "nudged_levels": levels.most["nudged"],
            "cosine": min(cosines),
        },
        tables=(
            Table(
                "Test accuracy on digits, %",
                (Column("Seed", "d"), Column("ternary", ".1f"), Column("float", ".1f")),
                tuple(zip(context.seeds, ternary.scores, whole.scores, strict=True)),
            ),
        ),
    )


def _unwrapped(chip: OnChip) -> OnChip:
    """The same chip with its own solver: the oracle owes nothing to what was put around it."""
    found = OnChip(chip.device, chip.network)
    found.gradient = chip.gradient
    return found


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        at_least("ternary", level.pick(88.0, 92.0, 92.0), "test accuracy with ternary weights, %"),
        at_most("lost", level.pick(6.0, 4.0, 4.0), "points lost to a network with float weights"),
        at_most("free_levels", 3, "values of a weight in the free phase"),
        at_most("nudged_levels", 3, "values of a weight in the nudged phases"),
        at_least("cosine", 0.99, "smallest cosine with the ternary network's exact gradient"),
    )


TRACK = Track(
    number=4,
    title="Ternary Weights",
    claim="A network whose weights have three values in the free and in the nudged phases learns "
    "by EP, every layer of it.",
    experiment="Digits, 64-32-10, outputs among the neurons: weights of −α, 0 and α in every "
    "phase, float accumulators in the update; the same with float weights.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("quantiser bypassed in the nudged phase", "nudged phases use the accumulators"),
        Sabotage("layer 1 frozen", "the first layer does not learn"),
    ),
    statements=(
        "Ternary {ternary}, float {float}: {gap}. At most {nudged_levels} values of a weight in "
        "any phase; cosine with the exact gradient {cosine:.5f}.",
    ),
    cost=25,
)
