"""How a training step's cost grows with hidden size, batch and contraction factor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from toreqprop.bench.speed import BASELINE, OURS, Setup
from toreqprop.bench.speed import measure as measure_speed

HIDDEN = (64, 128, 256, 512, 1024, 2048, 4096)
BATCH = (16, 64, 256, 1024)
RADIUS = (0.05, 0.1, 0.3, 0.6, 0.95)
"""Bounds on the norm of the recurrent weight; the contraction factor reached is measured."""

MIDDLE = (128, 64, 256)
"""(batch, inputs, hidden) of what is not varied."""


@dataclass(frozen=True)
class Point:
    """One measurement: what was varied, to which value, and what a step then took.

    ``steps`` is the number of evaluations of f over all phases, ``contraction`` the recurrent
    weight's spectral norm at the end.
    """

    varied: str
    value: float
    milliseconds: float
    backprop_milliseconds: float
    ratio: float
    steps: float
    contraction: float


@dataclass(frozen=True)
class Scaling:
    """Three curves."""

    points: tuple[Point, ...]
    conditions: dict[str, Any]

    def curve(self, varied: str) -> list[Point]:
        """The points of one curve, in order."""
        return [p for p in self.points if p.varied == varied]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def measure(setup: Setup, on_point: Callable[[], None] | None = None) -> Scaling:
    """Vary one thing at a time, next to backpropagation with the same sizes."""
    setup = replace(setup, rounds=min(setup.rounds, 30), warmup=min(setup.warmup, 40))
    batch, inputs, hidden = MIDDLE
    todo: list[tuple[str, float, tuple[int, int, int], Setup]] = [
        ("hidden size", n, (batch, inputs, n), setup) for n in HIDDEN
    ]
    todo += [("batch", n, (n, inputs, hidden), setup) for n in BATCH]
    todo += [("radius", r, MIDDLE, replace(setup, radius=r)) for r in RADIUS]
    points, conditions = [], {}
    for varied, value, size, options in todo:
        table = measure_speed(options, sizes=(size,), unrolled=False)
        conditions = table.conditions
        row = table.rows[0]
        ours, baseline = row.of(OURS), row.of(BASELINE)
        points.append(
            Point(
                varied,
                value,
                ours.best_ms,
                baseline.best_ms,
                ours.ratio,
                sum(ours.steps.values()),
                row.contraction,
            )
        )
        if on_point is not None:
            on_point()
    return Scaling(tuple(points), {**conditions, "radius": setup.radius, "middle": MIDDLE})


def draw(curves: Scaling, folder: Path) -> list[Path]:
    """The three curves side by side, as SVG and PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    for axis, varied in zip(axes, ("hidden size", "batch", "radius"), strict=True):
        points = curves.curve(varied)
        values = [p.value for p in points]
        if varied == "radius":
            values = [p.contraction for p in points]
            axis.set_xlabel("contraction factor reached")
        else:
            axis.set_xscale("log", base=2)
            axis.set_xlabel(varied)
        axis.set_yscale("log")
        axis.plot(values, [p.milliseconds for p in points], "o-", label="TorEqProp")
        axis.plot(values, [p.backprop_milliseconds for p in points], "s--", label="backprop")
        axis.set_ylabel("ms per training step")
        axis.grid(True, alpha=0.3)
    axes[0].legend()
    paths = [folder / "speed_scaling.svg", folder / "speed_scaling.png"]
    for path in paths:
        figure.savefig(path, dpi=150)
    plt.close(figure)
    return paths
