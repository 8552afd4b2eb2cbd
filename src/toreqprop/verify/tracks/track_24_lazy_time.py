"""Track 24: does stopping each sample save time, and not only products?"""

from __future__ import annotations

import time

from torch.nn import functional as F

from toreqprop.models import LoopedMLP
from toreqprop.solvers import FixedPoint
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Column, Measurements, Table
from toreqprop.verify.networks import Split, load
from toreqprop.verify.probes import error, gradients
from toreqprop.verify.settling import NEVER, equal_steps, near_the_edge, wanted_gradients
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, at_most

TOL = 1e-3
SAMPLES = 512


def run(context: Context) -> Measurements:
    hidden, epochs, rounds = context.level.pick((160, 1, 7), (192, 3, 15), (256, 6, 25))
    ratios, equal, rows, extra = [], [], [], []
    for seed in context.seeds:
        context.report(f"training, seed {seed}")
        data = load(context, "digits", seed)
        model = near_the_edge(data, hidden, epochs, seed, TOL)
        x, y = data.x[:SAMPLES], data.y[:SAMPLES]
        steps = _steps(model, data)
        wanted = wanted_gradients(model, x, y)
        lazy = FixedPoint(tol=TOL, max_steps=2000)
        fixed = FixedPoint(tol=NEVER, max_steps=max(steps))
        model.solver = lazy
        target = error(gradients(model, x, y), wanted)
        fewest = equal_steps(model, x, y, wanted, target, 2 * max(steps))
        ways = {"lazy": lazy, "fixed": fixed, "equal": FixedPoint(tol=NEVER, max_steps=fewest)}
        if context.sabotaged("nobody stops"):
            ways["lazy"] = fixed
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        errors = {}
        for _ in range(rounds):
            for name, solver in ways.items():
                model.solver = solver
                started = time.process_time()
                F.cross_entropy(model(x), y).backward()
                seconds[name].append(time.process_time() - started)
                model.zero_grad()
        for name, solver in ways.items():
            model.solver = solver
            errors[name] = error(gradients(model, x, y), wanted)
        middle = {n: sorted(s)[len(s) // 2] for n, s in seconds.items()}
        ratios.append(middle["lazy"] / middle["fixed"])
        equal.append(middle["lazy"] / middle["equal"])
        extra.append(errors["lazy"])
        rows.append(
            (seed, steps[0], steps[1], fewest, 1e3 * middle["lazy"], 1e3 * middle["fixed"],
             1e3 * middle["equal"], ratios[-1],
             errors["lazy"], errors["fixed"])
        )  # fmt: skip
    return Measurements(
        {"error": max(extra)},
        timings={
            "equal_ratio": sorted(equal)[len(equal) // 2],
            "ratio": sorted(ratios)[len(ratios) // 2], "worst_ratio": max(ratios),
        },
        tables=(
            Table(
                f"Processor time of a gradient, {SAMPLES} samples, {hidden} neurons, compiled, one "
                "thread: middle of rounds in turn; error against EP at rest to rounding",
                (
                    Column("seed", "d"), Column("free steps of the slowest", "d"),
                    Column("nudged steps of the slowest", "d"),
                    Column("fixed steps of equal error", "d"), Column("each on its own, ms", ".1f"),
                    Column("all until the slowest, ms", ".1f"),
                    Column("fixed steps of equal error, ms", ".1f"), Column("ratio", ".2f"),
                    Column("error, each on its own", ".1e"), Column("error, all", ".1e"),
                ),
                tuple(rows),
                volatile=True,
            ),
        ),
    )  # fmt: skip


def _steps(model: LoopedMLP, data: Split) -> tuple[int, int]:
    """Of the slowest sample, in the free and the nudged phase."""
    found: dict[str, int] = {}
    key = model.register_relaxation_hook(lambda phase, s: found.update({phase: s.steps}))
    F.cross_entropy(model(data.x[:SAMPLES]), data.y[:SAMPLES]).backward()
    model.remove_relaxation_hook(key)
    model.zero_grad()
    return found["free"], found["nudged"]


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        at_most("ratio", 0.85, "processor time, each sample on its own over all until the slowest"),
        at_most("error", 0.033, "relative error of the gradient, each sample on its own"),
        at_most("equal_ratio", 0.95, "the same over the fewest fixed steps of equal error"),
        at_most("worst_ratio", 0.95, "the same ratio of the worst seed", required=False),
    )


TRACK = Track(
    number=24,
    title="Lazy Settling in Time",
    claim="A gradient whose samples stop on their own takes less processor time than one that runs "
    "all of them as long as the slowest, or by the best fixed number of steps of equal error.",
    experiment="The compiled kernel on networks near the edge of stability, both ways in turn in "
    "one process and thread; gradient error against EP at rest to rounding.",
    run=run,
    bounds=bounds,
    sabotages=(Sabotage("nobody stops", "samples that have settled are relaxed on"),),
    statements=(
        "Processor time with lazy settling was {ratio:.2f} of that without (middle seed; worst "
        "{worst_ratio:.2f}), and {equal_ratio:.2f} of that of the best fixed number of steps of "
        "equal error, known only in hindsight, at a relative error of {error:.1e} or less.",
    ),
    cost=5,
)
