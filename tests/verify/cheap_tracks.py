"""Tracks that cost nothing, for tests of the harness itself."""

from __future__ import annotations

import numpy as np

from toreqprop.verify.measurements import Accuracy, Column, Figure, Measurements, Series, Table
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import at_least, at_most


def measure(context: Context) -> Measurements:
    """A mean of normal numbers, which sabotage shifts; a pretended time that never repeats."""
    rng = np.random.default_rng(context.seed)
    mean = float(rng.normal(size=1000).mean()) + (5.0 if context.sabotaged("shift") else 0.0)
    if context.sabotaged("harmless"):
        mean *= 1.0
    if context.sabotaged("crash"):
        raise RuntimeError("broken on purpose")
    clock = float(np.random.default_rng().normal())
    return Measurements(
        {"mean": mean},
        timings={"seconds": abs(clock)},
        tables=(
            Table("Means", (Column("what"), Column("mean", ".2f")), (("normal", mean),)),
            Table("Times", (Column("seconds", ".2f"),), ((clock,),), volatile=True),
        ),
        figures=(
            Figure("A curve", "x", "y", (Series("mean", (1, 2, 3), (mean, 1.0, 2.0)),)),
            Figure("Bars", "", "%", (Series("g", ("a", "b"), (50.0, 60.0)),), bars=True),
        ),
    )


def cheap(number: int = 90, **changes: object) -> Track:
    """A track with a required and a desirable bound."""
    settings: dict[str, object] = {
        "number": number,
        "title": f"Cheap Track {number}",
        "claim": "The mean of normal numbers is near zero.",
        "experiment": "Draw a thousand.",
        "run": measure,
        "bounds": lambda level: (
            at_most("mean", 0.5, "mean of a thousand normal numbers"),
            at_least("mean", -0.5, "mean of a thousand normal numbers", required=False),
        ),
        "sabotages": (Sabotage("shift", "adds five"),),
        "statements": ("The mean is {mean:.3f}.", "Not measured: {nothing:.3f}."),
        **changes,
    }
    return Track(**settings)  # type: ignore[arg-type]


GUESSING = Accuracy((36, 40, 33), (360, 360, 360), 0.1)
LEARNED = Accuracy((345, 350, 349), (360, 360, 360), 0.1)
