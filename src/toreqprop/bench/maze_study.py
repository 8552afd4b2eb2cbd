"""The runs of the maze study: kept in a file, searched for their rates, rendered as tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from toreqprop.atomic import write_atomically
from toreqprop.bench.mazes import METHODS, Run, Setup, build, run, score, split, train
from toreqprop.errors import InvalidInputError


def measure(
    setup: Setup, path: Path, on_run: Callable[[Run], None] = lambda found: None
) -> list[Run]:
    """Every run of ``setup``; those in the file already are kept, new ones are added to it."""
    known = read(path, setup) if path.exists() else []
    done = {(r.task, r.method, r.seed): r for r in known}
    for key in setup.runs():
        if key not in done:
            done[key] = run(setup, *key)
            content = {"setup": asdict(setup), "runs": [asdict(r) for r in done.values()]}
            write_atomically(path, json.dumps(content, indent=1))
        on_run(done[key])
    return [done[key] for key in setup.runs()]


def load(path: Path) -> tuple[Setup, list[Run]]:
    """The setup of a file and its runs.

    Raises:
        InvalidInputError: it is no such file.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text())
        stored = Setup(**_tuples(content["setup"]))
        return stored, [Run(**_tuples(r)) for r in content["runs"]]
    except (ValueError, TypeError, KeyError, AttributeError, OSError):
        raise InvalidInputError(
            f"{path} holds no runs that can be read: remove it, or choose another --output."
        ) from None


def read(path: Path, setup: Setup) -> list[Run]:
    """The runs in a file.

    Raises:
        InvalidInputError: they were trained another way, or it is no such file.
    """
    stored, runs = load(path)
    wanted = replace(setup, tasks=stored.tasks, methods=stored.methods, seeds=stored.seeds)
    if stored != wanted:
        raise InvalidInputError(f"{path} holds runs of another setup: choose another --output.")
    return runs


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}


def search(setup: Setup, task: str, method: str, seed: int, rate: float) -> dict[str, Any]:
    """One trial on validation mazes: what was tried, and the percentages that came out."""
    data = split(setup, task, seed, validation=True)
    model = build(setup, task, method, seed)
    trained = train(setup, model, data.train, seed, rate)
    scores = [score(model, found) for found in data.scored]
    return {
        "task": task,
        "method": method,
        "seed": seed,
        "rate": rate,
        "beta": setup.beta,
        "tol": setup.tol,
        "max_steps": setup.max_steps,
        "updates": setup.updates,
        "sides": setup.sides,
        "exact": [exact for exact, _, _ in scores],
        "cells": [cells for _, cells, _ in scores],
        **asdict(trained),
    }


def render_markdown(runs: Iterable[Run], sides: tuple[int, ...]) -> str:
    """One row for each task and method: means over the seeds, the worst seed in brackets."""
    found = list(runs)
    heads = " | ".join(f"{side}x{side}" for side in sides)
    lines = [
        f"| task | network | parameters | seeds | {heads} | smallest cosine | certified |",
        "|---|---|---|---|" + "---|" * len(sides) + "---|---|",
    ]
    for task in dict.fromkeys(r.task for r in found):
        for method in METHODS:
            own = [r for r in found if (r.task, r.method) == (task, method)]
            if own:
                lines.append(_row(task, method, own, len(sides)))
    return "\n".join(lines)


def _row(task: str, method: str, own: list[Run], sides: int) -> str:
    columns = [[r.exact[k] for r in own] for k in range(sides)]
    exact = " | ".join(f"{sum(c) / len(c):.1f} ({min(c):g})" for c in columns)
    cosines = [r.cosine for r in own if r.cosine is not None]
    cosine = f"{min(cosines):.4f}" if cosines else "–"
    passed = [r.certified for r in own if r.certified is not None]
    certified = f"{sum(passed)} of {len(passed)}" if passed else "–"
    return (
        f"| {task} | {TITLES[method]} | {own[0].parameters:,} | {len(own)} | {exact} | {cosine} "
        f"| {certified} |"
    )


TITLES = {
    "ep": "map, EP",
    "implicit": "map, implicit gradient",
    "unrolled": "map, through the relaxation",
    "uncoupled": "map without its kernel",
    "plain-3": "feed-forward, 3 layers",
    "plain-6": "feed-forward, 6 layers",
    "plain-12": "feed-forward, 12 layers",
}
