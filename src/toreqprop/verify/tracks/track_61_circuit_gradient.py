"""Track 61: EP's gradient from simulated voltages is that of the simulated loss."""

from __future__ import annotations

from toreqprop.bench.circuits.gradients import (
    conductance_slopes,
    cosine,
    finite_differences,
    slopes,
    small_circuit,
)
from toreqprop.gradients import CenteredEP
from toreqprop.verify.circuits import simulator
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Column, Measurements, Table
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, at_least, at_most

BETA = 1e-3
"""In units of an output's total conductance before training."""


def run(context: Context) -> Measurements:
    spice = simulator()
    sizes = context.level.pick((2, 3, 2), (4, 6, 3), (4, 6, 5, 3))
    model, x, target = small_circuit(sizes)
    model.solver, model.gradient = spice, CenteredEP(BETA)
    beta = BETA
    if context.sabotaged("nudge beyond the output's conductance"):
        totals = model.conductances()[-1].detach().sum(1)
        beta = 3 * float(totals.max()) / model.field.scale
    context.report("finite differences")
    exact = finite_differences(model, x, target)
    context.report("nudged phases")
    found = {
        "conductance": [model.unit * g for g in conductance_slopes(model, x, target, beta, spice)],
        "current": slopes(model, x, target),
    }
    rows = []
    for nudge, gradient in found.items():
        if context.sabotaged("gain left out"):
            gradient = [g / model.network.weight(i) for i, g in enumerate(gradient)]
        size = sum(float(b.square().sum()) for b in exact) ** 0.5
        off = sum(float((a - b).square().sum()) for a, b in zip(gradient, exact, strict=True))
        rows.append((nudge, cosine(gradient, exact), off**0.5 / size))
    return Measurements(
        {
            "conductances": sum(g.numel() for g in exact),
            "cosine": min(row[1] for row in rows),
            "error": max(row[2] for row in rows),
        },
        tables=(
            Table(
                f"{'-'.join(map(str, sizes))}: every conductance's slope from ngspice's voltages "
                "in two phases, against central differences of ngspice's loss",
                (Column("Nudge"), Column("cosine", ".9f"), Column("relative error", ".1e")),
                tuple(rows),
            ),
        ),
    )


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        at_least("cosine", 0.999999, "cosine with the slopes of the simulated loss"),
        # Differences over 0.1 % of a conductance are right to about 1e-6 of the curvature.
        at_most("error", 1e-4, "relative error of the gradient, scale of the layers included"),
    )


TRACK = Track(
    number=61,
    title="Circuit Gradient",
    claim="The gradient that EP reads from a circuit's voltages in two nudged phases is the "
    "gradient of the circuit's loss, both as ngspice simulates it.",
    experiment="Move each conductance of a resistive network by 0.1 % both ways and simulate the "
    "loss; compare with ½ΔV² across it at +β and −β, nudged by currents and by a conductance.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage(
            "nudge beyond the output's conductance",
            "β is three times the total conductance at an output",
        ),
        Sabotage("gain left out", "the factor A² of the layers below the top is forgotten"),
    ),
    statements=(
        "Over {conductances} conductances the smallest cosine is {cosine:.9f}, the largest "
        "relative error {error:.1e}.",
    ),
    cost=6,
)
