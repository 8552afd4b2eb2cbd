"""Track 64: a circuit learns iris inside ngspice."""

from __future__ import annotations

from toreqprop.bench.circuits.iris import SIZES, TEST, train
from toreqprop.bench.unnudged import UnnudgedEP
from toreqprop.gradients import CenteredEP, GradientEstimator
from toreqprop.verify.circuits import simulator
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Accuracy, Measurements
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, at_least


def run(context: Context) -> Measurements:
    spice = simulator()
    seeds, epochs = context.level.pick((1, 8), (3, 12), (5, 30))
    gradient: GradientEstimator = CenteredEP()
    if context.sabotaged("no nudge"):
        gradient = UnnudgedEP()
    correct = []
    for seed in context.seeds[:seeds]:
        context.report(f"seed {seed}")
        correct.append(train(spice, seed, epochs, gradient)[1])
    totals = (TEST,) * len(correct)
    return Measurements({"accuracy": Accuracy(tuple(correct), totals, 1 / 3), "epochs": epochs})


def bounds(level: Level) -> tuple[Bound, ...]:
    return (at_least("accuracy", level.pick(80.0, 90.0, 93.0), "test accuracy, %"),)


TRACK = Track(
    number=64,
    title="Iris in SPICE",
    claim="A resistive network learns iris from simulated voltages alone.",
    experiment=f"Train {'-'.join(map(str, SIZES))} with ngspice as the model's solver: every "
    "free and nudged phase is an operating point of the netlist.",
    run=run,
    bounds=bounds,
    sabotages=(Sabotage("no nudge", "the nudged phases feel no nudge"),),
    statements=("After {epochs} epochs in ngspice: {accuracy}.",),
    cost=6,
)
