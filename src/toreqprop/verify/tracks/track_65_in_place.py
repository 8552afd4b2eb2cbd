"""Track 65: a mismatched circuit that learns in place does what a deployed one cannot."""

from __future__ import annotations

from toreqprop.bench.circuits.digits import Recipe, build, digits, learn, scaled
from toreqprop.evidence.statistics import compare
from toreqprop.training import predict
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Accuracy, Column, Measurements, Paired, Table
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, at_least


def run(context: Context) -> Measurements:
    circuits, recipe = context.level.pick(
        (2, Recipe(hidden=24, epochs=4)),
        (5, Recipe(hidden=32, epochs=10)),
        (5, Recipe(hidden=32, epochs=10)),
    )
    correct: dict[str, list[int]] = {}
    total = chance = 0.0
    for seed in range(context.seed, context.seed + circuits):
        context.report(f"circuit {seed}")
        data = digits(seed)
        total, labels = len(data[3]), data[3]
        chance = float(labels.bincount().max()) / total
        ideal = learn(build(recipe, seed), data, recipe, seed)
        for times, suffix in ((1.0, ""), (2.0, "_twice")):
            faults = scaled(times, seed)
            deployed, in_place = build(recipe, seed, faults), build(recipe, seed, faults)
            deployed.load_state_dict(ideal.state_dict())
            if context.sabotaged("layer frozen"):
                in_place.crossbars[0].requires_grad_(False)
            learn(in_place, data, recipe, seed)
            for name, model in (("deployed", deployed), ("in_place", in_place)):
                right = int((predict(model, data[2]) == labels).sum())
                correct.setdefault(name + suffix, []).append(right)
    totals = (int(total),) * circuits
    found = {
        name: Accuracy(tuple(c), totals, chance, contrast=name.startswith("deployed"))
        for name, c in correct.items()
    }
    columns = ("deployed", "in_place", "deployed_twice", "in_place_twice")
    gap = compare(found["in_place"].scores, found["deployed"].scores).gap
    return Measurements(
        {
            **found,
            "circuits": circuits,
            "gain": gap.mean,
            "surest_gain": gap.mean if gap.low is None or circuits < 5 else gap.low,
            "gain_twice": found["in_place_twice"].mean - found["deployed_twice"].mean,
            "comparison": Paired(found["in_place"].scores, found["deployed"].scores),
        },
        tables=(
            Table(
                "Test accuracy on digits of each mismatched circuit, %",
                (
                    Column("Circuit", "d"),
                    *(
                        Column(name, ".1f")
                        for name in ("deployed", "in place", "deployed, twice", "in place, twice")
                    ),
                ),
                tuple(
                    (context.seed + i, *values)
                    for i, values in enumerate(
                        zip(*(found[name].scores for name in columns), strict=True)
                    )
                ),
            ),
        ),
    )


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        at_least("in_place", level.pick(93.0, 94.0, 94.0), "test accuracy in place, %"),
        # By the interval over circuits where there are enough of them for one.
        at_least(
            "surest_gain",
            level.pick(1.0, 0.5, 0.5),
            "points gained in place at these spreads (lower end of the interval)",
        ),
        # At these spreads an ideally trained network loses less than five points, and so in place
        # there are no five to be gained; where the components spread twice as wide there are.
        at_least("gain_twice", 5.0, "points gained in place at twice these spreads"),
    )


TRACK = Track(
    number=65,
    title="In Place",
    claim="On circuits with strong mismatch, EP in place recovers what deploying an ideally "
    "trained network loses.",
    experiment="Digits on circuits with conductances off by 40 %, diodes by 70 %, returned "
    "currents by 20 % and offsets of 50 mV, and at twice these spreads: trained ideal and "
    "deployed, and trained in place.",
    run=run,
    bounds=bounds,
    sabotages=(Sabotage("layer frozen", "the first crossbar does not learn in place"),),
    statements=(
        "Over {circuits} circuits: deployed {deployed}, in place {in_place}; {gain:+.1f} points.",
        "At twice the spreads: deployed {deployed_twice}, in place {in_place_twice}; "
        "{gain_twice:+.1f} points.",
    ),
    cost=12,
)
