"""The study: which trainings are run, at which rates, and the files that hold what they found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toreqprop import checks
from toreqprop.atomic import write_atomically
from toreqprop.bench.language.networks import METHODS, Shape
from toreqprop.bench.language.training import Recipe
from toreqprop.bench.language.verdict import judged_runs
from toreqprop.errors import DataUnavailableError, InvalidInputError
from toreqprop.evidence import Listener, Measurement, Store, run_jobs, run_study
from toreqprop.evidence.study import KEPT
from toreqprop.tasks.shakespeare import ALPHABET, TASK

SHAPE = Shape(len(ALPHABET))
UPDATES, BATCH = 1000, 16
GRID = (5e-3, 1e-2, 2e-2, 4e-2)
SEARCHED_UPDATES, SEARCH_SEED = 250, 1000
"""Of the trials that choose the rates; no result has that seed."""

RATES = {"ep": 2e-2, "implicit": 2e-2, "plain": 5e-3}
"""Of each method, by `choose` from results/language_search.jsonl."""

TRIAL = "toreqprop.bench.language.trial"
SEEDS = 5


def training(
    method: str, seed: int, rate: float, updates: int, *, search: bool = False, shape: Shape = SHAPE
) -> Measurement:
    """One training as a job; of a search it sees validation text alone."""
    recipe = Recipe(rate, updates, BATCH)
    return Measurement(
        "language",
        f"{method}, rate {rate:g}, {updates} updates, seed {seed}",
        f"{TRIAL}:{'tried' if search else 'trained'}",
        (
            ("method", method),
            ("seed", seed),
            ("shape", tuple(asdict(shape).items())),
            ("recipe", tuple(asdict(recipe).items())),
        ),
        tasks=(TASK,),
    )


def measurements(
    methods: Sequence[str], seeds: Sequence[int], updates: int, shape: Shape = SHAPE
) -> list[Measurement]:
    """Every training at its rate, seed by seed, and what counting neighbours predicts."""
    counting = Measurement(
        "language", "neighbours counted", f"{TRIAL}:counted",
        (("symbols", shape.symbols), ("context", shape.context)), tasks=(TASK,),
    )  # fmt: skip
    found = [training(m, s, RATES[m], updates, shape=shape) for s in seeds for m in methods]
    return [counting, *found]


def run_language(
    folder: Path,
    *,
    methods: Sequence[str] = METHODS,
    seeds: int = SEEDS,
    first_seed: int = 0,
    updates: int = UPDATES,
    shape: Shape = SHAPE,
    processes: int = 1,
    fresh: bool = False,
    listener: Listener[Measurement] | None = None,
) -> dict[str, Any]:
    """Train, test and judge; writes ``language.json`` and returns what it holds.

    Stopped at any time, the next call goes on from there; finished trainings are kept one by one.

    Raises:
        InvalidInputError: an unknown method, or the seed that the search had.
        DataUnavailableError: the text is not here and cannot be fetched.
    """
    for method in methods:
        checks.choice("method", method, METHODS)
    checks.whole_number("seeds", seeds, 1)
    checks.whole_number("updates", updates, 2)
    chosen = range(first_seed, first_seed + seeds)
    if SEARCH_SEED in chosen:
        raise InvalidInputError(f"Seed {SEARCH_SEED} chose the rates: take others for results.")
    whole = (tuple(methods), updates, shape) == (METHODS, UPDATES, SHAPE)
    # What is not whole never takes the place of what is.
    stem = "language" if whole else "language_partial"
    words = [f"--method {m}" for m in methods if tuple(methods) != METHODS]
    words += [f"--seeds {seeds}"] * (seeds != SEEDS) + [f"--seed {first_seed}"] * (first_seed != 0)
    words += [] if updates == UPDATES else [f"--updates {updates}"]
    return run_study(
        measurements(methods, chosen, updates, shape),
        lambda found: {"stem": stem, "shape": asdict(shape), **judged_runs(found[0], found[1:])},
        command=" ".join(["toreqprop language", *words]),
        path=folder / f"{stem}.json",
        processes=processes,
        fresh=fresh,
        listener=listener,
    )


def run_search(
    folder: Path,
    *,
    methods: Sequence[str] = METHODS,
    updates: int = SEARCHED_UPDATES,
    processes: int = 1,
    fresh: bool = False,
    listener: Listener[Measurement] | None = None,
) -> dict[str, Any]:
    """Try every rate of the grid for every method alike, on validation text, and add each trial to
    ``language_search.jsonl``. The chosen rates are written into `RATES` by hand, which a test holds
    against that file."""
    jobs = [
        training(method, SEARCH_SEED, rate, updates, search=True)
        for method in methods
        for rate in GRID
    ]
    done = run_jobs(jobs, Store(folder / KEPT), processes, listener, fresh=fresh)
    for reason in done.absent.values():
        raise DataUnavailableError(reason)
    trials = [_trial(record["found"], updates) for record in done.records.values()]
    log = folder / "language_search.jsonl"
    known = log.read_text().splitlines() if log.exists() else []
    new = [line for line in map(json.dumps, trials) if line not in known]
    write_atomically(log, "".join(f"{line}\n" for line in [*known, *new]))
    return {"trials": trials, "chosen": choose(trials)}


def _trial(found: dict[str, Any], updates: int) -> dict[str, Any]:
    """A line of the search's log."""
    return {
        "kind": "rate",
        "method": found["method"],
        "seed": found["seed"],
        "rate": found["rate"],
        "updates": updates,
        "batch": BATCH,
        "tokens": found["tokens"],
        "radius": SHAPE.radius,
        "tol": SHAPE.tol,
        "solver": "plain steps",
        "bits": found["validation_bits"],
        "steps": found.get("steps"),
        "unsettled": found.get("unsettled"),
    }


def choose(trials: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Of each method, the rate with the fewest bits among those at which all relaxations settled:
    where one does not, EP has no gradient."""
    best: dict[str, dict[str, Any]] = {}
    for trial in (t for t in trials if not t["unsettled"]):
        held = best.setdefault(trial["method"], trial)
        if trial["bits"] < held["bits"]:
            best[trial["method"]] = trial
    return {method: trial["rate"] for method, trial in best.items()}
