"""Track 62: resistive networks in PyTorch have ngspice's voltages."""

from __future__ import annotations

from dataclasses import replace

from toreqprop.bench.circuits.random_circuits import (
    TIGHT,
    RandomCircuit,
    difference,
    random_circuit,
)
from toreqprop.models import ResistiveMLP
from toreqprop.verify.circuits import simulator
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Column, Measurements, Table
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, at_least, at_most

FIRST = 3000
"""Seed of the first circuit: none of development, tests or the benchmark."""


def run(context: Context) -> Measurements:
    spice = simulator()
    # Not more: circuit 3070 (2-1-7-10, amplifiers of 6.9) keeps ngspice 39 busy without end at a
    # relative tolerance of 1e-12.
    count = context.level.pick(6, 30, 60)
    rows = []
    for seed in range(FIRST, FIRST + count):
        context.report(f"circuit {seed}")
        circuit = random_circuit(seed)
        mine = circuit
        if context.sabotaged("one kelvin"):
            mine = _warmer(circuit)
        apart = difference(mine.voltages(TIGHT), circuit.voltages(spice))
        faulty = "yes" if circuit.model.device else "no"
        rows.append((seed, "-".join(map(str, circuit.model.sizes)), faulty, apart))
    return Measurements(
        {
            "circuits": count,
            "hidden": sum(row[1].count("-") > 1 for row in rows),
            "worst": max(row[3] for row in rows),
        },
        tables=(
            Table(
                "Largest difference of any voltage over six inputs, free and at ±β",
                (
                    Column("Seed", "d"),
                    Column("sizes"),
                    Column("faults"),
                    Column("volts apart", ".1e"),
                ),
                tuple(rows),
            ),
        ),
    )


def _warmer(circuit: RandomCircuit) -> RandomCircuit:
    model = circuit.model
    warm = ResistiveMLP(**{**model.config(), "celsius": model.celsius + 1}).double()
    warm.load_state_dict(model.state_dict())
    return replace(circuit, model=warm)


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        at_least("hidden", 3, "circuits with diodes"),
        at_most("worst", 1e-9, "largest difference of any voltage, V"),
    )


TRACK = Track(
    number=62,
    title="PyTorch and SPICE",
    claim="Resistive networks of any depth, options and faults settle in PyTorch at the voltages "
    "of ngspice, to 1e-9 V.",
    experiment="Draw random circuits, with faults in every second, and solve each free and at ±β "
    "by Newton's method in PyTorch and by ngspice.",
    run=run,
    bounds=bounds,
    sabotages=(Sabotage("one kelvin", "PyTorch's circuit is one kelvin warmer than ngspice's"),),
    statements=("In {circuits} random circuits the largest difference is {worst:.1e} V.",),
    cost=5,
)
