"""The study: which trainings are run, and the file that holds what they found."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from toreqprop import checks
from toreqprop.bench.cifar.jobs import recipe_of, training
from toreqprop.bench.cifar.recipe import METHODS, Method, Recipe
from toreqprop.evidence import Listener, Measurement, run_study
from toreqprop.evidence.provenance import commit
from toreqprop.evidence.statistics import CONFIDENCE, wilson
from toreqprop.evidence.study import KEPT

SEED = 42

Network = Literal["pure", "hybrid"]
NETWORKS: tuple[Network, ...] = ("pure", "hybrid")

HYBRID = Recipe(front=(32, 64), channels=(128, 256), start="he", feedback=0.1)

RECIPES: dict[Network, dict[Method, Recipe]] = {
    "pure": {"ep": Recipe(tol=4e-3), "backprop": Recipe()},
    "hybrid": {"ep": HYBRID, "backprop": HYBRID},
}
"""Chosen on held-out training images (``results/cifar10_search.jsonl``).

The pure network's tolerance is from certificates of networks before training, on training images:
at 7e-3 the free phase may end after one pass, and of seeds 42 to 46 two were refused (cosines 0.988
and 0.990 of the input's gradient); at 4e-3 the smallest of the five is 0.9966.
"""

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
    network: Network = "pure",
    methods: Sequence[Method] = METHODS,
    epochs: int | None = None,
    images: int | None = None,
    seed: int = SEED,
    seeds: int = 1,
    keep: bool = False,
    processes: int = 1,
    fresh: bool = False,
    listener: Listener[Any] | None = None,
) -> dict[str, Any]:
    """Run or resume the study; writes ``cifar10.json`` or ``cifar10_hybrid.json`` and returns what
    it holds. ``seeds`` are so many from ``seed`` on.

    What is not whole (a method alone, fewer epochs or images) is called ``…_partial.json``. With
    ``keep`` the trainings of the file that is there count as done if their settings are these,
    whatever code made them: they are listed as ``carried``, each with the commit it was made at.
    The step of the residual network, which takes seconds, is measured again.

    Raises:
        InvalidInputError: an unknown network or method, or numbers that train nothing.
    """
    checks.choice("network", network, NETWORKS)
    for method in methods:
        checks.choice("method", method, METHODS)
    checks.whole_number("seeds", seeds, 1)
    words = ["toreqprop cifar", *([] if network == "pure" else [f"--network {network}"])]
    words += [f"--method {m}" for m in methods if tuple(methods) != METHODS]
    changes: dict[str, Any] = {}
    if epochs is not None:
        changes["epochs"] = checks.whole_number("epochs", epochs, 1)
        words.append(f"--epochs {epochs}")
    if images is not None:
        checks.whole_number("images", images, 1)
        words.append(f"--images {images}")
    words += [] if seed == SEED else [f"--seed {seed}"]
    words += [] if seeds == 1 else [f"--seeds {seeds}"]
    words += ["--keep"] if keep else []
    whole = tuple(methods) == METHODS and epochs is None and images is None
    stem = ("cifar10" if network == "pure" else f"cifar10_{network}") + "_partial" * (not whole)
    path = folder / f"{stem}.json"
    trainings: list[Measurement] = [
        training(method, RECIPES[network][method].but(**changes), number, images, folder / KEPT)
        for number in range(seed, seed + seeds)
        for method in methods
    ]
    planned = whole and network == "pure"
    wanted = trainings + [RESIDUAL] * planned
    done = finished(json.loads(path.read_text())) if keep and path.exists() else []
    earlier = {job.label: each for job in trainings for each in done if _same(job, each)}
    jobs = [job for job in wanted if job.label not in earlier]
    now = commit()

    def assemble(measured: list[Any]) -> dict[str, Any]:
        found = {label: each["found"] for label, each in earlier.items()}
        found |= {
            job.label: {**each, "commit": now} for job, each in zip(jobs, measured, strict=True)
        }
        runs = [found[job.label] for job in trainings]
        return {
            "stem": stem,
            "network": network,
            "runs": runs,
            "gaps": [each for each in map(gap, by_seed(runs).values()) if each is not None],
            "residual": found[RESIDUAL.label] if planned else None,
            "carried": [each["measurement"] for each in earlier.values()],
        }

    return run_study(
        jobs,
        assemble,
        command=" ".join(words),
        path=path,
        processes=processes,
        fresh=fresh,
        listener=listener,
    )


def finished(report: dict[str, Any]) -> list[dict[str, Any]]:
    """What a file of the study holds, measurement by measurement: its finding and, as
    ``measurement``, what it was made of."""
    made = {each["label"]: each for each in (*report.get("carried", ()), *report["measurements"])}
    found: dict[str, Any] = {}
    for run in report["runs"]:
        label = f"{run['method']}-all-images-{len(run['epochs'])}-epochs-seed-{run['seed']}"
        kind = "hybrid-" if run["settings"].get("front") else ""
        found[f"cifar10-{kind}{label}"] = run
    if report["residual"] is not None:
        found[RESIDUAL.label] = report["residual"]
    return [
        {"found": {"commit": report["commit"], **value}, "measurement": made[label]}
        for label, value in found.items()
        if label in made
    ]


def _same(job: Measurement, earlier: dict[str, Any]) -> bool:
    """Whether an earlier finding is of this job's settings; those that it does not name yet were
    what they are by default."""
    made = earlier["measurement"]
    if (made["label"], made["settings"]["data"]) != (job.label, job.settings()["data"]):
        return False
    then, today = dict(made["settings"]["arguments"]), job.settings()["arguments"]
    if "settings" in today:
        then["settings"], today["settings"] = (
            recipe_of(each["settings"]) for each in (then, today)
        )
    return bool(then == today)


def by_seed(runs: Sequence[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    """The runs of each seed."""
    found: dict[int, list[dict[str, Any]]] = {}
    for run in runs:
        found.setdefault(run["seed"], []).append(run)
    return found


def accuracies(runs: Sequence[dict[str, Any]], method: Method) -> list[float]:
    """Of a method, in percent, by seed."""
    return [100 * run["accuracy"] for run in runs if run["method"] == method]


def gap(runs: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """EP minus backprop in points of test accuracy, with its interval over the test images: both
    answer the same ones, so that only those count on which just one of them is right.

    It says how much of the gap the choice of test images explains; how much another seed would
    change it, one training of each cannot say. None where there are not both of one seed.
    """
    by = {run["method"]: run for run in runs}
    if set(by) != set(METHODS):
        return None
    right = {name: answers(run) for name, run in by.items()}
    apart = right["ep"].astype(float) - right["backprop"]
    mean, error = float(apart.mean()), float(apart.std(ddof=1)) / math.sqrt(len(apart))
    reach = statistics.NormalDist().inv_cdf(0.5 + CONFIDENCE / 2) * error
    return {
        "seed": by["ep"]["seed"],
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
