"""Track 26: the memory of a training step does not depend on how long the network relaxes."""

from __future__ import annotations

from typing import Any

from toreqprop.bench.memory_probe import BATCH, peaks
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Column, Figure, Measurements, Series, Table
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, above, at_least, at_most

METHODS = ("EP", "implicit", "checkpointed", "unrolled")
HIDDEN = 512
REPEATS = 2


def run(context: Context) -> Measurements:
    steps = context.level.pick((10, 100, 1000), (10, 30, 100, 300, 1000), (10, 30, 100, 300, 1000))
    found: dict[str, tuple[float, ...]] = {}
    for method in METHODS:
        measured = "unrolled" if method == "EP" and context.sabotaged("graph kept") else method
        context.report(f"{method}, {len(steps)} numbers of steps")
        runs = [peaks(measured, HIDDEN, steps) for _ in range(REPEATS)]
        # What else a process happens to allocate meanwhile can only add to a high-water mark.
        found[method] = tuple(min(run[k] for run in runs) for k in range(len(steps)))
    growth = {method: figures[-1] / figures[0] for method, figures in found.items()}
    rows: list[tuple[Any, ...]] = [
        (method, *figures, growth[method]) for method, figures in found.items()
    ]
    return Measurements(
        values={"steps_from": steps[0], "steps_to": steps[-1]},
        timings={
            **{f"{method.lower()}_growth": g for method, g in growth.items()},
            **{f"{method.lower()}_mb": figures[-1] for method, figures in found.items()},
            "unrolled_over_ep": found["unrolled"][-1] / found["EP"][-1],
        },
        tables=(
            Table(
                f"Peak megabytes of one training step above what was resident before it; batch "
                f"{BATCH}, hidden {HIDDEN}, float32, least of {REPEATS} processes",
                (
                    Column("Method"),
                    *(Column(f"{n} steps", ".2f") for n in steps),
                    Column(f"{steps[-1]} over {steps[0]}", ".2f"),
                ),
                tuple(rows),
                volatile=True,
            ),
        ),
        figures=(
            Figure(
                "Peak memory of a training step",
                "relaxation steps",
                "MB",
                tuple(Series(method, steps, figures) for method, figures in found.items()),
                log_x=True,
                log_y=True,
                volatile=True,
            ),
        ),
    )


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        at_least("steps_to", 1000, "most relaxation steps measured"),
        at_most("ep_growth", 1.05, "EP: growth of peak memory from fewest to most steps"),
        above("ep_mb", 0.0, "EP: peak memory at the most steps, MB"),
        at_least("unrolled_growth", 20.0, "unrolled: the same growth"),
        at_most("implicit_growth", 1.05, "implicit: the same growth", required=False),
        above("checkpointed_growth", 1.05, "checkpointed: the same growth", required=False),
    )


TRACK = Track(
    number=26,
    title="O(1) Memory",
    claim="The peak memory of an EP training step is the same for 10 and for 1000 relaxation "
    "steps; backpropagation through the relaxation needs more with every step.",
    experiment="Measure the resident set's high-water mark over one training step in a process of "
    "its own, for networks that relax exactly the given number of steps.",
    run=run,
    bounds=bounds,
    sabotages=(Sabotage("graph kept", "EP keeps the graph of its relaxation, as unrolling does"),),
    statements=(
        "From {steps_from} to {steps_to} relaxation steps peak memory grew by a factor of "
        "{ep_growth:.2f} (EP), {implicit_growth:.2f} (implicit), {checkpointed_growth:.2f} "
        "(checkpointed) and {unrolled_growth:.2f} (unrolled).",
        "At {steps_to} steps the unrolled network needed {unrolled_mb:.0f} MB, EP {ep_mb:.1f} MB: "
        "{unrolled_over_ep:.0f} times as much.",
    ),
    cost=30,
)
