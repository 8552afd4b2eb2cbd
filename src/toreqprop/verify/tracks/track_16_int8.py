"""Track 16: eight bits for every weight and every state, in every phase."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from toreqprop.energies.devices import Converter, Device, Quantised
from toreqprop.models import OnChip
from toreqprop.solution import Solution
from toreqprop.verify.devices import Around, learned, other_device, recipe_for, scored
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Accuracy, Column, Measurements, Paired, Table, pooled
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, at_least, at_most

CHIP = Device(weights=Quantised(8), states=Converter(8), settle=15)


@dataclass
class Grid:
    """How far any reading was from the converter's values, in steps, by phase."""

    free: float = 0.0
    nudged: float = 0.0

    def __call__(self, phase: str, solution: Solution) -> None:
        step = Converter(8).step
        states = (*solution.up, *solution.down) if solution.shift else solution.state
        units = torch.cat([s.detach().double().flatten() for s in states]) / step
        off = float((units - units.round()).abs().max())
        setattr(self, phase, max(off, getattr(self, phase)))


def run(context: Context) -> Measurements:
    recipe, grid = recipe_for(context.level), Grid()
    frozen = context.sabotaged("layer 1 frozen")

    def watched(chip: OnChip) -> None:
        chip.register_relaxation_hook(grid)
        if context.sabotaged("quantiser bypassed in the nudged phase"):
            chip.solver = Around(inner=chip.solver, change=other_device(states=None))

    parts: dict[str, list[Accuracy]] = {"int8": [], "float": []}
    for seed in context.seeds:
        context.report(f"seed {seed}")
        chip, data = learned(CHIP, recipe, seed, frozen=frozen, around=watched)
        parts["int8"].append(scored(chip, data, seed))
        plain, _ = learned(Device(), recipe, seed)
        parts["float"].append(scored(plain, data, seed))
    int8, whole = pooled(parts["int8"]), pooled(parts["float"])
    return Measurements(
        {
            "int8": int8,
            "float": whole,
            "gap": Paired(int8.scores, whole.scores),
            "lost": whole.mean - int8.mean,
            "free_off_grid": grid.free,
            "nudged_off_grid": grid.nudged,
        },
        tables=(
            Table(
                "Test accuracy on digits, %",
                (Column("Seed", "d"), Column("8 bit", ".1f"), Column("float", ".1f")),
                tuple(zip(context.seeds, int8.scores, whole.scores, strict=True)),
            ),
        ),
    )


def bounds(level: Level) -> tuple[Bound, ...]:
    # A state is the mean and half difference of two readings in float32: 1e-4 of a step is left.
    return (
        at_least("int8", level.pick(91.0, 94.0, 94.0), "test accuracy with eight bits, %"),
        at_most("lost", level.pick(3.0, 1.5, 1.0), "points lost to a float network"),
        at_most("free_off_grid", 1e-3, "distance of free readings from the grid, steps"),
        at_most("nudged_off_grid", 1e-3, "distance of nudged readings from the grid, steps"),
    )


TRACK = Track(
    number=16,
    title="INT8",
    claim="With eight bits for weights and for the states of the free and the nudged phases, EP "
    "learns as well as in floating point.",
    experiment="Digits, 64-32-10: 8-bit weights, 8-bit converters between neurons and at the "
    "measurement in every phase, β from the budget; the same in floating point.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("quantiser bypassed in the nudged phase", "nudged phases are read exactly"),
        Sabotage("layer 1 frozen", "the first layer does not learn"),
    ),
    statements=("Eight bits {int8}, float {float}: {gap}.",),
    cost=30,
)
