"""Whether networks as fast as those of the speed table are as accurate as those of the benchmark.

The benchmark's settings, but for radius and gain: they are those of the speed table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from toreqprop.bench.bounds import BOUNDS
from toreqprop.bench.hyperparameters import settings
from toreqprop.bench.plan import FIRST_SEED
from toreqprop.bench.rows import title
from toreqprop.bench.run import Run, execute

TASKS = ("digits", "mnist")
"""Those with the sizes of the speed table's first two rows: 64-128 and 784-256."""


@dataclass(frozen=True)
class SameAccuracy:
    """Test accuracies in percent, one for each seed, and the benchmark's own bounds."""

    task: str
    title: str
    radius: float
    gain: float
    backprop: tuple[float, ...]
    ep: tuple[float, ...]
    gap: float
    least_gap: float
    least_accuracy: float
    passed: bool

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def measure(
    radius: float, gain: float, seeds: int = 3, on_run: Callable[[str], None] | None = None
) -> list[SameAccuracy]:
    """Train both models of every task from every seed."""
    found = []
    for task in TASKS:
        chosen = settings(task, False)
        chosen = replace(chosen, ep=replace(chosen.ep, radius=radius, gain=gain))
        scores: dict[str, list[float]] = {"backprop": [], "ep": []}
        for seed in range(FIRST_SEED, FIRST_SEED + seeds):
            for model in scores:
                run = Run(task, model, seed, chosen)  # type: ignore[arg-type]
                if on_run is not None:
                    on_run(run.label)
                scores[model].append(100 * execute(run)["accuracy"])
        gap = float(np.mean(scores["ep"]) - np.mean(scores["backprop"]))
        bound = BOUNDS[task]
        passed = gap >= bound.gap and float(np.mean(scores["ep"])) >= bound.accuracy
        found.append(
            SameAccuracy(
                task, title(task, False), radius, gain,
                tuple(scores["backprop"]), tuple(scores["ep"]), gap,
                bound.gap, bound.accuracy, passed,
            )
        )  # fmt: skip
    return found
