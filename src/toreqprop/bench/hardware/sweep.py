"""Accuracy against faults through the evidence harness: search, then every method on every chip."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from toreqprop.bench.hardware.cell import Cell
from toreqprop.bench.hardware.claims import chips_needed, claims
from toreqprop.bench.hardware.faults import FAULTS, MAP, MAP_BITS, MAP_NOISE, Fault
from toreqprop.bench.hardware.kept import kept_records
from toreqprop.bench.hardware.methods import (
    BUDGET_SAMPLES,
    METHODS,
    RECIPES,
    Method,
    final_split,
)
from toreqprop.bench.hardware.plan import (
    Chosen,
    Gain,
    Plan,
    challengers,
    choose,
    expected,
    gains,
    refine,
    settings_of,
)
from toreqprop.bench.hardware.report import TUNED
from toreqprop.errors import DataUnavailableError, LostWorkError
from toreqprop.evidence import Listener, Outcome, Record, Store, provenance, run_jobs
from toreqprop.evidence.statistics import summarise
from toreqprop.hardware.budget import budget
from toreqprop.models import OnChip

KEPT = ".partial"
"""The folder of finished cells, inside that of the reports."""

Report = dict[str, Any]


def run_sweep(
    plan: Plan,
    output: Path,
    *,
    processes: int = 1,
    fresh: bool = False,
    listener: Listener[Cell] | None = None,
    so_far: bool = False,
    kept: Report | None = None,
    executor: Executor | str | None = None,
) -> Report:
    """Do what is missing of a plan and return its report as plain data.

    Finished cells of equal code, settings, data and versions are resumed from ``output``; with
    ``so_far`` they are all there is: nothing is measured, and the report says how many trials and
    cells are missing. Of a ``kept`` report all that it has is taken over, of whatever code it is,
    and the new one says of every cell which commit it is of. An ``executor``, or the address of a
    dask scheduler, has them done elsewhere.

    Raises:
        DataUnavailableError: the task's data cannot be had.
        LostWorkError: the process of a trial was killed twice.
    """
    started = time.time()
    store = Store(output / KEPT)

    def done(cells: list[Cell]) -> Outcome[Cell]:
        known = {} if kept is None else kept_records(kept, plan, cells)
        left = [c for c in cells if c not in known and (not so_far or store.path(c).exists())]
        again = fresh and not so_far
        found = run_jobs(left, store, processes, listener, fresh=again, executor=executor)
        both = known | found.records
        ordered = {cell: both[cell] for cell in cells if cell in both}
        return replace(found, records=ordered, reused=found.reused + len(known))

    first = plan.trials()
    searched = done(first)
    _whole(searched)
    chosen = choose(searched.records)
    second = plan.refinements(chosen)
    refined = done(second)
    _whole(refined)
    tried = gains(chosen, refined.records)
    chosen = refine(chosen, tried)
    heats = plan.heats(chosen)
    entered = done(heats)
    _whole(entered)
    finals = plan.finals(chosen, challengers(chosen, entered.records))
    finished = done(finals)
    _whole(finished)
    last = gains(chosen, finished.records)
    chosen = refine(chosen, last)
    asked = [
        {"fault": fault, "rival": rival, "gap": asdict(gap), "chips": chips_needed(gap)}
        for (fault, rival), gap in expected(chosen, finished.records).items()
    ]
    cells = done(plan.cells(chosen))
    searches = searched, refined, entered, finished
    trials = {cell: r for search in searches for cell, r in search.records.items()}
    made = provenance(command(plan), started)
    jobs = processes if executor is None else "elsewhere"
    reused = sum(search.reused for search in searches) + cells.reused
    made["timing"] |= {"jobs": jobs, "reused_cells": reused}
    made["heats"], made["power"] = _means(entered.records), asked
    made["missing_trials"] = len({*first, *second, *heats, *finals}) - len(trials)
    made["missing_cells"] = plan.size - len(cells.records)
    return sweep_report(plan, trials, cells.records, chosen, (tried, last), made)


def _whole(outcome: Outcome[Cell]) -> None:
    """Without its search a sweep has no settings."""
    for reason in outcome.absent.values():
        raise DataUnavailableError(reason)
    for reason in outcome.lost.values():
        raise LostWorkError(reason)


def sweep_report(
    plan: Plan,
    trials: dict[Cell, Record],
    cells: dict[Cell, Record],
    chosen: Chosen,
    tried: tuple[list[Gain], list[Gain]],
    made: Report,
) -> Report:
    """Rows by fault, claims with verdicts, the search, and the key of every cell."""
    done = {cell: r for cell, r in cells.items() if "not_run" not in r}
    features, classes = final_split(plan.base.task, plan.first_seed).sizes
    accuracies = {f.name: _by_method(f, done) for f in plan.faults}
    return {
        **made,
        "task": plan.base.task,
        "whole": plan.whole,
        "network": [features, plan.base.hidden, classes],
        "recipe": asdict(plan.base),
        "methods": list(METHODS),
        "rows": [_row(f, done, accuracies[f.name], chosen) for f in plan.faults],
        "claims": claims(plan.base.task, accuracies),
        "not_run": {c.label: r["not_run"] for c, r in cells.items() if "not_run" in r},
        "search": _searched(trials),
        "second": [asdict(gain) for gain in tried[0]],
        "third": [asdict(gain) for gain in tried[1]],
        "keys": {c.label: r.get("key", c.key) for c, r in (trials | done).items()},
        "commits": {c.label: r.get("commit", made["commit"]) for c, r in (trials | done).items()},
    }


def judged(found: Report) -> Report:
    """A kept report with its claims judged again, from the accuracies that it holds."""
    accuracies = {
        row["fault"]: {
            method: {int(seed): value for seed, value in scores.items()}
            for method, scores in row["accuracies"].items()
        }
        for row in found["rows"]
    }
    return {**found, "claims": claims(found["task"], accuracies)}


def _by_method(fault: Fault, cells: Mapping[Cell, Record]) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for cell, record in cells.items():
        if cell.fault == fault:
            found.setdefault(cell.method, {})[cell.seed] = record["accuracy"]
    return found


def _row(
    fault: Fault,
    cells: Mapping[Cell, Record],
    accuracies: dict[str, dict[int, float]],
    chosen: Chosen,
) -> Report:
    """One fault: what every method reached, and what learning in place took."""
    place = [r for c, r in cells.items() if (c.fault, c.method) == (fault, "in situ")]
    means = {
        name: fmean(values) if (values := [r[name] for r in place if r[name] is not None]) else None
        for name in ("norm", "beta", "cosine")
    }
    kept: tuple[Method, ...] = tuple(m for m in METHODS if m in accuracies)
    used = {m: settings_of(chosen, fault, m) for m in kept}
    return {
        "fault": fault.name,
        "claimed": fault.claimed,
        "device": str(fault.device),
        "scores": {m: asdict(summarise(list(accuracies[m].values()))) for m in kept},
        "accuracies": {m: {str(s): a for s, a in accuracies[m].items()} for m in kept},
        "settings": {m: list(r.tuned) for m, r in used.items() if r is not None},
        **means,
    }


def _searched(trials: Mapping[Cell, Record]) -> list[Report]:
    """Every trial, by fault, method and recipe."""
    found: dict[tuple[str, str, float, int, float, bool], dict[int, float]] = {}
    for cell, record in trials.items():
        key = (cell.fault.name, cell.method, *cell.recipe.tuned, cell.wide)
        found.setdefault(key, {})[cell.seed] = record["accuracy"]
    return [
        {
            "fault": fault,
            "method": method,
            "learning_rate": rate,
            "epochs": epochs,
            "feedback": feedback,
            **({"wide": True} if wide else {}),
            "seeds": list(scores),
            "held_out": list(scores.values()),
        }
        for (fault, method, rate, epochs, feedback, wide), scores in found.items()
    ]


def _means(trials: Mapping[Cell, Record]) -> list[Report]:
    """The same trials as means over their seeds."""
    return [
        {**{n: t[n] for n in ("fault", "method", *TUNED)}, "mean": fmean(t["held_out"]),
         "seeds": len(t["seeds"])}
        for t in _searched(trials)
    ]  # fmt: skip


def command(plan: Plan) -> str:
    """The command that gives these results: all options that change them, and no folders."""
    parts = [f"toreqprop hardware sweep --task {plan.base.task}"]
    if plan.faults == MAP:
        parts.append("--map")
    elif plan.faults != FAULTS:
        parts += [
            f"--device {f.size}.toml" if f.kind == "device" else f"--fault '{f.name}'"
            for f in plan.faults
        ]
    if plan.methods != METHODS and plan.faults != MAP:
        parts += [f"--method '{name}'" for name in plan.methods]
    if plan.seeds is not None:
        parts.append(f"--seeds {plan.seeds}")
    if plan.first_seed:
        parts.append(f"--seed {plan.first_seed}")
    return " ".join(parts)


KEPT_OF_MAPS = ("commit", "command", "environment", "timing", "task", "search", "keys")


def map_report(found: Report) -> Report:
    """Mean accuracy in place, rows by noise, and the budget's error before training."""
    scores = {row["fault"]: row["scores"]["in situ"] for row in found["rows"]}
    width = len(MAP_BITS)
    means = [scores[fault.name]["mean"] for fault in MAP]
    errors = [_predicted_error(fault, found["task"]) for fault in MAP]
    return {
        **{name: found[name] for name in KEPT_OF_MAPS},
        "chips": min(s["n"] for s in scores.values()),
        "noise": list(MAP_NOISE),
        "bits": list(MAP_BITS),
        "accuracy": [means[i : i + width] for i in range(0, len(means), width)],
        "sd": [
            [scores[f.name]["sd"] for f in MAP[i : i + width]] for i in range(0, len(MAP), width)
        ],
        "error": [errors[i : i + width] for i in range(0, len(errors), width)],
    }


def _predicted_error(fault: Fault, task: str) -> float:
    recipe = RECIPES[task]
    data, few = final_split(task, 0), slice(0, BUDGET_SAMPLES)
    torch.manual_seed(0)
    model = OnChip(fault.chip(0), recipe.network(0))
    return budget(model, data.x[few], data.y[few], loss=recipe.loss).error
