"""The study: which trainings are run, at which rates, and the files that hold what they found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toreqprop import checks
from toreqprop.atomic import write_atomically
from toreqprop.bench.reward.policies import BETA, EP, IMPLICIT, METHODS, TOLERANCE
from toreqprop.bench.reward.ppo import Recipe
from toreqprop.bench.reward.trial import ENVIRONMENTS
from toreqprop.bench.reward.verdict import judged_runs, second_half
from toreqprop.errors import InvalidInputError
from toreqprop.evidence import Listener, Measurement, Store, run_study
from toreqprop.evidence.study import KEPT

TASKS = tuple(ENVIRONMENTS)
STUDIED = ("ep", "same-size", "same-depth")
"""The methods of the study. The implicit gradient of the looped network takes longer than EP here,
and certificates compare with it anyway: it is run where it is asked for."""

GRID = (1e-3, 3e-3, 1e-2)
SEARCH_SEEDS = (1000, 1001)
"""Of the trials that choose the rates: no result has one of them."""

RATES = Path(__file__).with_name("rates.json")
"""The rate of each task and method, written by the search."""

TRIAL = "toreqprop.bench.reward.trial"


def rate_of(task: str, method: str) -> float:
    """What the search chose; the implicit gradient, which is EP's limit, has EP's rate.

    Raises:
        InvalidInputError: nothing was searched for yet.
    """
    if not RATES.exists():
        raise InvalidInputError("No rates were chosen yet: run `toreqprop reward --search` first.")
    rates: dict[str, dict[str, float]] = json.loads(RATES.read_text())
    return rates[task]["ep" if method == "implicit" else method]


def training(task: str, method: str, seed: int, rate: float, updates: int | None) -> Measurement:
    """One training as a job."""
    recipe = Recipe(rate, ENVIRONMENTS[task].updates if updates is None else updates)
    settles = method in (EP, IMPLICIT)
    relaxing = ("relaxing", (("beta", BETA), ("tol", TOLERANCE)))
    return Measurement(
        "reward",
        f"{task}, {method}, rate {rate:g}, seed {seed}",
        f"{TRIAL}:trained",
        (
            ("task", task),
            ("method", method),
            ("seed", seed),
            ("recipe", tuple(asdict(recipe).items())),
            *((relaxing,) if settles else ()),
        ),
        weight=recipe.updates * (2.0 if settles else 1.0),
    )


def measurements(
    tasks: Sequence[str], methods: Sequence[str], seeds: Sequence[int], updates: int | None = None
) -> list[Measurement]:
    """Every training at its rate, and a policy that acts at random; seed by seed."""
    found = []
    for seed in seeds:
        for task in tasks:
            found += [training(task, m, seed, rate_of(task, m), updates) for m in methods]
            arguments = (("task", task), ("seed", seed))
            name = f"{task}, random, seed {seed}"
            found.append(Measurement("reward", name, f"{TRIAL}:at_random", arguments))
    return found


def run_reward(
    folder: Path,
    *,
    tasks: Sequence[str] = TASKS,
    methods: Sequence[str] = STUDIED,
    seeds: int = 10,
    first_seed: int = 0,
    updates: int | None = None,
    keep: bool = False,
    processes: int = 1,
    fresh: bool = False,
    listener: Listener[Measurement] | None = None,
) -> dict[str, Any]:
    """Train, evaluate and judge; writes ``reward.json`` and returns what it holds.

    Stopped at any time, the next call goes on from there. ``updates`` makes trainings shorter than
    the study's. With ``keep`` the trainings of the file that is there count as done if their
    settings are these, whatever code made them, unless this code has made them too: they are listed
    as ``carried``, each with its commit.

    Raises:
        InvalidInputError: an unknown task or method, or seeds that the search had.
    """
    _check(tasks, methods)
    checks.whole_number("seeds", seeds, 1)
    chosen = range(first_seed, first_seed + seeds)
    if set(chosen) & set(SEARCH_SEEDS):
        raise InvalidInputError("Seeds 1000 and 1001 chose the rates: take others for results.")
    whole = (tuple(tasks), tuple(methods), updates) == (TASKS, STUDIED, None)
    # What is not whole never takes the place of what is.
    stem = "reward" if whole else "reward_partial"
    words = [f"--task {t}" for t in tasks if tuple(tasks) != TASKS]
    words += [f"--method {m}" for m in methods if tuple(methods) != STUDIED]
    words += [f"--seeds {seeds}"] * (seeds != 10) + [f"--seed {first_seed}"] * (first_seed != 0)
    words += [] if updates is None else [f"--updates {updates}"]
    words += ["--keep"] * keep
    path = folder / f"{stem}.json"
    wanted = measurements(tasks, methods, chosen, updates)
    store = Store(folder / KEPT)
    earlier = _finished(path, [j for j in wanted if store.load(j) is None]) if keep else {}
    jobs = [job for job in wanted if job.label not in earlier]

    def assemble(measured: list[dict[str, Any]]) -> dict[str, Any]:
        found = {label: run for label, (_, run) in earlier.items()}
        found |= {job.label: run for job, run in zip(jobs, measured, strict=True)}
        carried = [made for made, _ in earlier.values()]
        return {"stem": stem, "carried": carried, **judged_runs([found[j.label] for j in wanted])}

    return run_study(
        jobs,
        assemble,
        command=" ".join(["toreqprop reward", *words]),
        path=path,
        processes=processes,
        fresh=fresh,
        listener=listener,
    )


def _finished(
    path: Path, jobs: Sequence[Measurement]
) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """By label, what the study's file holds of these jobs: what a run was made of, and the run."""
    if not path.exists():
        return {}
    report = json.loads(path.read_text())
    runs = {(run["task"], run["method"], run["seed"]): run for run in report["runs"]}
    made = {each["label"]: each for each in (*report.get("carried", ()), *report["measurements"])}
    found = {}
    for job in jobs:
        each = made.get(job.label)
        if each is not None and each["settings"] == job.settings():
            given = dict(job.arguments)
            run = runs[given["task"], given.get("method", "random"), given["seed"]]
            found[job.label] = ({"commit": report["commit"], **each}, run)
    return found


def run_search(
    folder: Path,
    *,
    tasks: Sequence[str] = TASKS,
    updates: int | None = None,
    processes: int = 1,
    fresh: bool = False,
    listener: Listener[Measurement] | None = None,
    rates: Path = RATES,
) -> dict[str, Any]:
    """Try every rate of the grid for every method alike; writes ``reward_search.json``, and the
    chosen rates where the study reads them. Trials of other ``tasks`` stay as they are there."""
    _check(tasks, STUDIED)
    path = folder / "reward_search.json"
    before = json.loads(path.read_text()) if path.exists() else {"trials": [], "measurements": []}
    kept = [each for each in before["trials"] if each["task"] not in tasks]
    carried = [
        {"commit": before["commit"], **each}
        for each in (*before.get("carried", ()), *before["measurements"])
        if each["settings"]["arguments"]["task"] not in tasks
    ]
    keys = [
        (task, method, rate, seed)
        for seed in SEARCH_SEEDS
        for task in tasks
        for method in STUDIED
        for rate in GRID
    ]

    def assemble(found: list[dict[str, Any]]) -> dict[str, Any]:
        trials = [
            {
                "task": task, "method": method, "rate": rate, "seed": seed,
                "second_half": second_half(each["curve"]), "greedy": each["mean_return"],
            }
            for (task, method, rate, seed), each in zip(keys, found, strict=True)
        ]  # fmt: skip
        trials = sorted(trials + kept, key=lambda each: TASKS.index(each["task"]))
        return {
            "grid": GRID, "seeds": SEARCH_SEEDS, "trials": trials, "chosen": choose(trials),
            "carried": carried,
        }  # fmt: skip

    found = run_study(
        [training(task, method, seed, rate, updates) for task, method, rate, seed in keys],
        assemble,
        command=" ".join(
            ["toreqprop reward --search", *(f"--task {t}" for t in tasks if tuple(tasks) != TASKS)]
        ),
        path=path,
        processes=processes,
        fresh=fresh,
        listener=listener,
    )
    write_atomically(rates, json.dumps(found["chosen"], indent=1) + "\n")
    return found


def choose(trials: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Of each task and method, the rate with the best mean over the trials' seeds."""
    chosen: dict[str, dict[str, float]] = {}
    for task, method in dict.fromkeys((t["task"], t["method"]) for t in trials):
        own = [t for t in trials if (t["task"], t["method"]) == (task, method)]

        def score(rate: float, own: list[dict[str, Any]] = own) -> float:
            return sum(t["second_half"] for t in own if t["rate"] == rate)

        chosen.setdefault(task, {})[method] = max((t["rate"] for t in own), key=score)
    return chosen


def _check(tasks: Sequence[str], methods: Sequence[str]) -> None:
    for task in tasks:
        checks.choice("task", task, TASKS)
    for method in methods:
        checks.choice("method", method, METHODS)
