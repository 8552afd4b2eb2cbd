"""Peak memory of one training step: against relaxation steps and against size by three methods, and
of the networks of `toreqprop speed` beside what these are held against."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from toreqprop.bench import memory_rows
from toreqprop.bench.memory_probe import INPUTS, peaks
from toreqprop.evidence import Measurement

STEPS = (10, 30, 100, 300, 1000)
HIDDEN = (128, 256, 512, 1024, 2048)
METHODS = {"TorEqProp": "EP", "unrolled": "unrolled", "backprop": "backprop"}
"""What figures call a method, and what the probe calls it."""

BATCH, SEED = 1024, 42
HIDDEN_OF_STEPS, STEPS_OF_HIDDEN = 512, 30


@dataclass(frozen=True)
class Point:
    """Peak memory of one training step of a method, in MB, and the steps its free phase took."""

    method: str
    steps: int
    hidden: int
    peak_mb: float


@dataclass(frozen=True)
class MemoryCurves:
    """Against relaxation steps (hidden size fixed) and against hidden size (steps fixed); and the
    ``rows`` as `memory_rows` measures them."""

    against_steps: tuple[Point, ...]
    against_hidden: tuple[Point, ...]
    rows: tuple[dict[str, Any], ...]

    def growth(self, method: str) -> float:
        """Peak at the most steps over peak at the fewest."""
        points = [p for p in self.against_steps if p.method == method]
        return points[-1].peak_mb / points[0].peak_mb

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        conditions = {
            "batch": BATCH,
            "inputs": INPUTS,
            "hidden": HIDDEN_OF_STEPS,
            "steps": STEPS_OF_HIDDEN,
            "dtype": "float32",
            "threads": 1,
            "method": "VmHWM above VmRSS, a fresh process for each point",
        }
        growth = {method: self.growth(method) for method in METHODS}
        return {
            **asdict(self),
            "conditions": conditions,
            "growth_from_fewest_to_most_steps": growth,
        }


def point(method: str, steps: int, hidden: int) -> dict[str, Any]:
    """One point as plain data, in a process of its own."""
    (peak,) = peaks(METHODS[method], hidden, (steps,), BATCH)
    return asdict(Point(method, steps, hidden, peak))


def measurements() -> list[Measurement]:
    """All points as jobs, those of each curve in their order, a point of both as one job; then all
    rows."""
    wanted = [(m, n, HIDDEN_OF_STEPS) for m in METHODS for n in STEPS]
    wanted += [(m, STEPS_OF_HIDDEN, n) for m in METHODS for n in HIDDEN]
    points = [
        Measurement(
            "memory",
            f"{method}, {steps} steps, {hidden} hidden",
            f"{__name__}:point",
            (("method", method), ("steps", steps), ("hidden", hidden)),
            weight=steps * hidden,
        )
        for method, steps, hidden in dict.fromkeys(wanted)
    ]
    rows = [
        Measurement(
            "memory",
            f"row {number}, {dict(network)['kind']}, {dict(network)['width']} wide",
            f"{memory_rows.__name__}:row",
            (("network", network), ("seed", SEED)),
            weight=dict(network)["width"],
        )
        for number, network in enumerate(memory_rows.wanted())
    ]
    return [*points, *rows]


def assembled(found: list[dict[str, Any]]) -> MemoryCurves:
    """Curves and rows from finished measurements."""
    points = [Point(**each) for each in found if "network" not in each]
    return MemoryCurves(
        tuple(p for p in points if p.hidden == HIDDEN_OF_STEPS),
        tuple(
            sorted(
                (p for p in points if p.steps == STEPS_OF_HIDDEN),
                key=lambda p: (list(METHODS).index(p.method), p.hidden),
            )
        ),
        tuple(each for each in found if "network" in each),
    )


def read(report: dict[str, Any]) -> MemoryCurves:
    """Curves and rows from their plain data."""
    steps, hidden = (tuple(Point(**point) for point in report[name]) for name in _CURVES)
    return MemoryCurves(steps, hidden, tuple(report["rows"]))


_CURVES = ("against_steps", "against_hidden")


def draw(curves: MemoryCurves, folder: Path) -> list[Path]:
    """Both curves side by side, as SVG and PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(8.5, 3.4), layout="constrained")
    panels = (
        (axes[0], curves.against_steps, "steps", "relaxation steps"),
        (axes[1], curves.against_hidden, "hidden", "hidden size"),
    )
    for axis, points, attribute, label in panels:
        for method, style in zip(METHODS, ("o-", "s--", "^:"), strict=True):
            mine = [p for p in points if p.method == method]
            axis.plot(
                [getattr(p, attribute) for p in mine],
                [p.peak_mb for p in mine],
                style,
                label=method,
            )
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel(label)
        axis.set_ylabel("peak memory of a training step, MB")
        axis.grid(True, alpha=0.3)
    axes[0].legend()
    paths = [folder / "memory.svg", folder / "memory.png"]
    for path in paths:
        figure.savefig(path, dpi=150)
    plt.close(figure)
    return paths
