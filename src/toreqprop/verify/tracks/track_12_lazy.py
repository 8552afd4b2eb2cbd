"""Track 12: each sample stops when it has settled; what that saves, at equal gradient error."""

from __future__ import annotations

from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Column, Figure, Measurements, Series, Table
from toreqprop.verify.mutations import plantable
from toreqprop.verify.networks import load
from toreqprop.verify.probes import mean
from toreqprop.verify.settling import (
    equal_steps,
    error_after,
    error_now,
    near_the_edge,
    settle,
    wanted_gradients,
)
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, at_least, at_most

TOL = 1e-3


@plantable
def run(context: Context) -> Measurements:
    hidden, epochs, samples = context.level.pick((32, 2, 128), (64, 5, 256), (96, 8, 384))
    saved, hindsight, lazy, slowest, same, rows = [], [], [], [], [], []
    for seed in context.seeds:
        context.report(f"training, seed {seed}")
        data = load(context, "digits", seed)
        model = near_the_edge(data, hidden, epochs, seed, TOL).double()
        model.kernel = None
        x, y = data.test_x[:samples].double(), data.test_y[:samples]
        wanted = wanted_gradients(model, x, y)
        found = settle(model, x, y)
        if context.sabotaged("nobody stops before the slowest"):
            found.free[:], found.nudged[:] = found.free.max(), found.nudged.max()
        longest = int(found.free.max()), int(found.nudged.max())
        per_sample = float(found.total.double().mean())
        saved.append(1 - per_sample / sum(longest))
        lazy.append(error_now(model, x, y, wanted))
        slowest.append(error_after(model, x, y, wanted, max(longest)))
        # As many products as lazy stopping used, shared out equally over samples and phases.
        equal = max(1, round(per_sample / 2))
        same.append(error_after(model, x, y, wanted, equal))
        fewest = equal_steps(model, x, y, wanted, lazy[-1], 2 * max(longest))
        hindsight.append(1 - per_sample / (2 * fewest))
        rows.append(
            (seed, per_sample, 2 * fewest, sum(longest), saved[-1], lazy[-1], slowest[-1], same[-1])
        )
    counts = [int((found.free == k).sum()) for k in range(1, longest[0] + 1)]
    return Measurements(
        {
            "saved": min(saved),
            "mean_saved": mean(saved),
            "saved_at_equal_error": min(hindsight),
            "error": max(lazy),
            "error_slowest": max(slowest),
            "error_same": min(same),
            "fixed_over_lazy": min(a / b for a, b in zip(same, lazy, strict=True)),
        },
        tables=(
            Table(
                f"Products with the recurrent matrix for one gradient ({samples} samples, tol "
                f"{TOL:g}) and the worst tensor's relative error against EP at rest to rounding",
                (
                    Column("seed", "d"), Column("a sample, each on its own", ".1f"),
                    Column("a sample, fixed steps for the same error", "d"),
                    Column("a sample, all until the slowest", "d"), Column("saved", ".1%"),
                    Column("error, each on its own", ".1e"),
                    Column("error, until the slowest", ".1e"),
                    Column("error, fixed steps for the same products", ".1e"),
                ),
                tuple(rows),
            ),
        ),
        figures=(
            Figure(
                "Samples by the steps their free phase took, last seed",
                "steps",
                "samples",
                (Series("free phase", tuple(range(1, len(counts) + 1)), tuple(counts)),),
            ),
        ),
    )  # fmt: skip


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        at_least("saved", 0.15, "share of products saved against the slowest sample's steps"),
        at_least("saved_at_equal_error", 0.05, "share saved against fixed steps of equal error"),
        # A residual of 1e-3 in a network that contracts by 0.97 a step: 1e-3/(1 - 0.97).
        at_most("error", 0.033, "relative error of the gradient, each sample on its own"),
        at_most("error_slowest", 0.033, "the same when nobody stops before the slowest"),
        at_least("fixed_over_lazy", 1.2, "error of fixed steps, same products, over lazy's"),
    )


TRACK = Track(
    number=12,
    title="Lazy Settling",
    claim="Stopping each sample when it has settled costs fewer products than running all until "
    "the slowest has, and fewer than the best fixed number of steps whose gradient is as good.",
    experiment="Networks near the edge of stability, trained on digits: products per sample and "
    "gradient error against EP at rest to rounding, for three ways to stop.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("nobody stops before the slowest", "products are those of the slowest sample"),
        Sabotage("stops at a hundred times the tolerance", "on the general path"),
    ),
    statements=(
        "Stopping each sample on its own saved {mean_saved:.0%} of the products on average "
        "({saved:.0%} at the least); the gradient's error was {error:.1e} at most, and "
        "{error_slowest:.1e} when all ran until the slowest.",
        "Against the fewest steps for all that give as good a gradient, known only in hindsight, "
        "{saved_at_equal_error:.0%} or more was saved; a fixed number that costs the same had "
        "{fixed_over_lazy:.1f} times that error or more.",
    ),
    cost=3,
)
