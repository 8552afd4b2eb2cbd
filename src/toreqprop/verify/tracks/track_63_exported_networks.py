"""Track 63: the library's networks, exported as circuits, settle at the library's states."""

from __future__ import annotations

import torch

from toreqprop.hardware import netlist
from toreqprop.models import EquilibriumModel, HopfieldMLP, LoopedMLP
from toreqprop.verify.circuits import simulator
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Column, Measurements, Table
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, at_least, at_most


def run(context: Context) -> Measurements:
    spice = simulator()
    hidden, points = context.level.pick((6, 6), (24, 20), (32, 20))
    rows = []
    for seed in context.seeds[: context.level.pick(1, 3, 5)]:
        for name, model in _models(hidden, seed).items():
            model.double()
            model.tol, model.max_steps = 1e-12, 5000
            x = torch.randn(points, 4, dtype=torch.float64)
            with torch.no_grad():
                expected = model.equilibrium(x).state
            if context.sabotaged("one sign flipped"):
                _flip(model)
            for neuron in ("behavioural", "pair"):
                for inputs in ("crossbar", "norton"):
                    context.report(f"{name}, {neuron}")
                    found = spice.operating_points(
                        netlist(model, x, neuron=neuron, inputs=inputs)  # type: ignore[arg-type]
                    )
                    apart = max(
                        float((found.voltages[f"s{layer}"] - s).abs().max())
                        for layer, s in enumerate(expected, start=1)
                    )
                    rows.append((name, seed, neuron, inputs, apart))
    return Measurements(
        {"circuits": len(rows), "worst": max(row[4] for row in rows)},
        tables=(
            Table(
                f"Largest difference of any unit's state over {points} inputs",
                (
                    Column("Network"),
                    Column("seed", "d"),
                    Column("neuron"),
                    Column("inputs"),
                    Column("apart", ".1e"),
                ),
                tuple(rows),
            ),
        ),
    )


def _models(hidden: int, seed: int) -> dict[str, EquilibriumModel]:
    torch.manual_seed(seed)
    return {
        "looped": LoopedMLP(4, hidden, 3, radius=0.9),
        "layered": HopfieldMLP([4, hidden, hidden, 3], feedback=0.7),
    }


@torch.no_grad()
def _flip(model: EquilibriumModel) -> None:
    """The sign of one weight, the smallest but one tenth of its layer: a subtle mistake."""
    matrix = next(p for p in model.parameters() if p.dim() == 2)
    flat = matrix.view(-1)
    at = int(flat.abs().argsort()[len(flat) // 10])
    flat[at] = -flat[at]


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        at_least("circuits", 8, "circuits simulated"),
        at_most("worst", 1e-8, "largest difference of any state"),
    )


TRACK = Track(
    number=63,
    title="Exported Networks",
    claim="A looped or layered network exported as a netlist, with behavioural neurons or with "
    "transistor pairs, settles in ngspice at the library's equilibrium, to 1e-8.",
    experiment="Export networks of both kinds in every form, simulate their operating points and "
    "compare each unit's state.",
    run=run,
    bounds=bounds,
    sabotages=(Sabotage("one sign flipped", "one small input weight has the wrong sign"),),
    statements=("In {circuits} circuits the largest difference is {worst:.1e}.",),
    cost=4,
)
