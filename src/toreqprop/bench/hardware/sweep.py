"""Accuracy against faults: every method on every chip, kept after each, to be resumed."""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from toreqprop.bench.circuits.report import commit
from toreqprop.bench.hardware.faults import Fault
from toreqprop.bench.hardware.methods import Method, Recipe, run, validation_split
from toreqprop.energies.devices import Device
from toreqprop.evidence import environment
from toreqprop.sealed import read_sealed, write_sealed

Row = dict[str, Any]
Recipes = dict[str, Recipe]

LEARNING_RATES, GAINS = (0.003, 0.01, 0.03), (0.0, 5.0)

RIVALS: dict[str, tuple[int, ...]] = {"clean backprop": (1,), "aware backprop": (1, 2)}
"""Methods whose recipe is chosen for every fault, and how many times the epochs they may take."""

OTHER_CHIPS = 1000
"""Added to a seed: chips on which rivals' recipes are chosen, none of those they are tested on."""


def search(base: Recipe, seeds: Sequence[int], on_trial: Callable[[Row], None]) -> list[Row]:
    """Every learning rate and loss for EP and backpropagation without faults, on held-out data."""
    trials = []
    kinds: tuple[tuple[str, Method], ...] = (("EP", "clean EP"), ("backprop", "clean backprop"))
    for (kind, method), rate, gain in itertools.product(kinds, LEARNING_RATES, GAINS):
        recipe = replace(base, learning_rate=rate, gain=gain)
        both = {"EP": recipe, "backprop": recipe}
        scores = [run(method, Device(), both, seed, validation_split)["accuracy"] for seed in seeds]
        trial = {
            "kind": kind, "learning_rate": rate, "gain": gain, "held_out": scores,
            "mean": sum(scores) / len(scores), "task": base.task,
        }  # fmt: skip
        trials.append(trial)
        on_trial(trial)
    return trials


def rival_search(method: Method, fault: Fault, base: Recipe, seeds: Sequence[int]) -> list[Row]:
    """Recipes of a rival under one fault, on held-out data and on other chips than the test's."""
    trials = []
    for rate, gain, times in itertools.product(LEARNING_RATES[1:], GAINS, RIVALS[method]):
        recipe = replace(base, learning_rate=rate, gain=gain, epochs=times * base.epochs)
        scores = [
            run(method, fault.chip(OTHER_CHIPS + s), {"backprop": recipe}, s, validation_split)[
                "accuracy"
            ]
            for s in seeds
        ]
        trials.append(
            {
                "learning_rate": rate, "gain": gain, "epochs": recipe.epochs, "held_out": scores,
                "mean": sum(scores) / len(scores),
            }
        )  # fmt: skip
    return trials


def rival(base: Recipe, trials: Sequence[Row]) -> Recipe:
    """The best of a rival's search."""
    best = max(trials, key=lambda t: t["mean"])
    return replace(
        base, learning_rate=best["learning_rate"], gain=best["gain"], epochs=best["epochs"]
    )


def chosen(base: Recipe, trials: Sequence[Row]) -> Recipes:
    """The best of a search for each kind."""
    found = {}
    for kind in ("EP", "backprop"):
        best = max((t for t in trials if t["kind"] == kind), key=lambda t: t["mean"])
        found[kind] = replace(base, learning_rate=best["learning_rate"], gain=best["gain"])
    return found


def key_of(fault: Fault, method: str, recipes: Recipes, seed: int) -> str:
    """What a cell depends on: it is measured again where any of this has changed."""
    kind = "backprop" if "backprop" in method else "EP"
    content = [fault.name, str(fault.device), fault.options, method, asdict(recipes[kind]), seed]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def load(path: Path) -> Row:
    """What a sweep has kept so far."""
    found = read_sealed(path) or {}
    return {"search": [], "rivals": {}, "cells": {}, **found}


def sweep(
    path: Path,
    base: Recipe,
    faults: Sequence[Fault],
    methods: Sequence[Method],
    seeds: Sequence[int],
    on_news: Callable[[str], None] = lambda text: None,
    search_seeds: Sequence[int] = (0, 1, 2),
) -> Row:
    """Measure what is missing in ``path``, fault by fault, writing after every cell.

    EP's recipe is chosen once, without faults; those of backpropagation for every fault.
    """
    kept, code = load(path), commit()
    if not kept["search"]:
        kept["search"] = search(base, search_seeds, lambda t: on_news(f"search {t['kind']}"))
        _write(path, kept, base, code)
    recipes = chosen(base, kept["search"])
    for fault, method, seed in itertools.product(faults, methods, seeds):
        if method in RIVALS:
            name = f"{fault.name}: {method}"
            if name not in kept["rivals"]:
                on_news(f"search {name}")
                kept["rivals"][name] = rival_search(method, fault, base, search_seeds[:2])
            recipes = {**recipes, "backprop": rival(base, kept["rivals"][name])}
        key = key_of(fault, method, recipes, seed)
        if key in kept["cells"]:
            on_news(f"{fault.name}: {method}, seed {seed} (kept)")
            continue
        started = time.perf_counter()
        torch.manual_seed(seed)
        row = run(method, fault.chip(seed), recipes, seed, options=fault.options)
        spent = round(time.perf_counter() - started, 2)
        row |= {"fault": fault.name, "seconds": spent, "commit": code}
        kept["cells"][key] = row
        _write(path, kept, base, code)
        on_news(f"{fault.name}: {method}, seed {seed}: {row['accuracy']:.1f} %")
    return kept


def _write(path: Path, kept: Row, base: Recipe, code: str) -> None:
    about = {
        "task": base.task,
        "recipes": {k: asdict(r) for k, r in chosen(base, kept["search"]).items()},
        "commit": code,
        "environment": environment(),
    }
    write_sealed(path, {**kept, **about})


def scores(kept: Row, fault: str) -> dict[str, dict[int, float]]:
    """By method and seed, the accuracies under one fault."""
    found: dict[str, dict[int, float]] = {}
    for row in kept["cells"].values():
        if row["fault"] == fault:
            found.setdefault(row["method"], {})[row["seed"]] = row["accuracy"]
    return found
