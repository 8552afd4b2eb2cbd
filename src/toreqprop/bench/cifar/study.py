"""The study: which trainings are run, and the file that holds what they found."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from toreqprop import checks
from toreqprop.bench.cifar.jobs import training
from toreqprop.bench.cifar.recipe import METHODS, Method, Recipe
from toreqprop.evidence import Listener, Measurement, run_study
from toreqprop.evidence.statistics import CONFIDENCE, wilson
from toreqprop.evidence.study import KEPT

SEED = 42

RECIPES: dict[Method, Recipe] = {"ep": Recipe(), "backprop": Recipe()}
"""Chosen on held-out training images (``results/cifar10_search.jsonl``)."""

RESIDUAL = Measurement(
    "cifar10",
    "a step of a residual network",
    "toreqprop.bench.cifar.plan:measured",
    (("width", 16), ("batch", 32), ("rounds", 5), ("feedback", 0.05), ("tol", 7e-3)),
    tasks=("cifar10",),
    weight=0.1,
)
"""What the plan for the published network is computed from."""


def run_cifar(
    folder: Path,
    *,
    methods: Sequence[Method] = METHODS,
    epochs: int | None = None,
    images: int | None = None,
    seed: int = SEED,
    processes: int = 1,
    fresh: bool = False,
    listener: Listener[Any] | None = None,
) -> dict[str, Any]:
    """Run or resume the study; writes ``cifar10.json`` and returns what it holds.

    What is not whole (a method alone, fewer epochs or images) is called ``cifar10_partial.json``.

    Raises:
        InvalidInputError: an unknown method, or numbers that train nothing.
    """
    for method in methods:
        checks.choice("method", method, METHODS)
    words = ["toreqprop cifar", *(f"--method {m}" for m in methods if tuple(methods) != METHODS)]
    changes: dict[str, Any] = {}
    if epochs is not None:
        changes["epochs"] = checks.whole_number("epochs", epochs, 1)
        words.append(f"--epochs {epochs}")
    if images is not None:
        checks.whole_number("images", images, 1)
        words.append(f"--images {images}")
    words += [] if seed == SEED else [f"--seed {seed}"]
    whole = tuple(methods) == METHODS and epochs is None and images is None
    stem = "cifar10" if whole else "cifar10_partial"
    jobs: list[Measurement] = [
        training(method, RECIPES[method].but(**changes), seed, images, folder / KEPT)
        for method in methods
    ]
    jobs += [RESIDUAL] if whole else []

    def assemble(found: list[Any]) -> dict[str, Any]:
        runs = found[: len(methods)]
        residual = found[-1] if whole else None
        return {"stem": stem, "runs": runs, "gap": gap(runs), "residual": residual}

    return run_study(
        jobs,
        assemble,
        command=" ".join(words),
        path=folder / f"{stem}.json",
        processes=processes,
        fresh=fresh,
        listener=listener,
    )


def gap(runs: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """EP minus backprop in points of test accuracy, with its interval over the test images: both
    answer the same ones, so that only those count on which just one of them is right.

    It says how much of the gap the choice of test images explains; how much another seed would
    change it, one training of each cannot say. None where there are not both.
    """
    by = {run["method"]: run for run in runs}
    if set(by) != set(METHODS):
        return None
    right = {name: answers(run) for name, run in by.items()}
    apart = right["ep"].astype(float) - right["backprop"]
    mean, error = float(apart.mean()), float(apart.std(ddof=1)) / math.sqrt(len(apart))
    reach = statistics.NormalDist().inv_cdf(0.5 + CONFIDENCE / 2) * error
    return {
        "points": 100 * mean,
        "low": 100 * (mean - reach),
        "high": 100 * (mean + reach),
        "only_ep_right": int((apart > 0).sum()),
        "only_backprop_right": int((apart < 0).sum()),
    }


def answers(run: dict[str, Any]) -> np.ndarray:
    """Whether each test image was named rightly, (count,) of bool."""
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(run["correct"]), np.uint8))
    return bits[: run["test_images"]].astype(bool)


def interval(run: dict[str, Any]) -> tuple[float, float]:
    """Of a run's test accuracy, in percent, over the test images."""
    low, high = wilson(int(answers(run).sum()), run["test_images"])
    return 100 * low, 100 * high
