"""The runs of the maze study: kept in a file, searched for their rates, rendered as tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from toreqprop.bench.mazes import (
    METHODS,
    Run,
    Setup,
    build,
    run,
    score,
    split,
    train,
)
from toreqprop.errors import InvalidInputError
from toreqprop.evidence import Listener, Measurement, run_study
from toreqprop.tasks.mazes import BRANCHING

Key = tuple[str, str, int]
"""Task, method and seed of a run."""
SEEDS = 5
"""How many of each: what is claimed is claimed of five."""


@dataclass(frozen=True)
class Study:
    """How each task was trained, and the runs."""

    setups: dict[str, Setup]
    runs: list[Run]

    def of(self, task: str, method: str) -> list[Run]:
        return [r for r in self.runs if (r.task, r.method) == (task, method)]


def measured(setup: Sequence[tuple[str, Any]], method: str, seed: int) -> dict[str, Any]:
    """One run, from the fields of a setup, as plain data."""
    return asdict(run(Setup(**dict(setup)), method, seed))


def measurement(setup: Setup, method: str, seed: int) -> Measurement:
    """One run as a job; how other methods are trained is no part of it."""
    own = replace(setup, others=((method, *setup.recipe(method)),))
    return Measurement(
        "mazes",
        f"{setup.task}, {method}, seed {seed}",
        f"{__name__}:measured",
        (("setup", tuple(asdict(own).items())), ("method", method), ("seed", seed)),
    )


def measure(
    setups: dict[str, Setup],
    keys: Sequence[Key],
    path: Path,
    command: str = "toreqprop mazes",
    listener: Listener[Measurement] | None = None,
    *,
    fresh: bool = False,
) -> Study:
    """A run for each key, kept in a file; those that were finished before are not repeated."""
    used = {task: setups[task] for task, _, _ in keys}
    run_study(
        [measurement(setups[task], method, seed) for task, method, seed in keys],
        lambda found: {"setups": {n: asdict(s) for n, s in used.items()}, "runs": found},
        command=command,
        path=path,
        listener=listener,
        fresh=fresh,
    )
    return load(path)


def load(path: Path) -> Study:
    """What a file holds.

    Raises:
        InvalidInputError: it is no such file.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text())
        setups = {name: Setup(**_tuples(values)) for name, values in content["setups"].items()}
        return Study(setups, [Run(**_tuples(r)) for r in content["runs"]])
    except (ValueError, TypeError, KeyError, AttributeError, OSError):
        raise InvalidInputError(
            f"{path} holds no runs that can be read: remove it, or choose another --output."
        ) from None


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {k: _tuple(v) if isinstance(v, list) else v for k, v in values.items()}


def _tuple(values: list[Any]) -> tuple[Any, ...]:
    return tuple(_tuple(v) if isinstance(v, list) else v for v in values)


def search(setup: Setup, method: str, seed: int, factor: float) -> dict[str, Any]:
    """One trial on validation mazes at so many times the rate of the setup: what was tried, and the
    percentages that came out."""
    updates, rate = setup.recipe(method)
    rate *= factor
    data = split(setup, seed, validation=True)
    model = build(setup, method, seed)
    trained = train(setup, model, data.train, seed, updates, rate)
    scores = [score(model, found) for found in data.scored[:SEARCHED]]
    return {
        "task": setup.task,
        "method": method,
        "seed": seed,
        "rate": rate,
        "nudge": "normalised",
        "settled_only": False,
        "cooperative": True,
        "branching": BRANCHING,
        "beta": setup.beta,
        "max_gain": setup.max_gain,
        "coupling": setup.coupling,
        "bias": setup.bias,
        "wall": setup.wall,
        "clip": setup.clip,
        "tol": setup.tol,
        "max_steps": setup.max_steps,
        "updates": updates,
        "sides": setup.sides[:SEARCHED],
        "exact": [exact for exact, _, _ in scores],
        "cells": [cells for _, cells, _ in scores],
        **asdict(trained),
    }


SEARCHED = 3
"""The sides a trial is scored at: a map that has not learnt to settle takes long at the largest."""


def render_markdown(found: Study) -> str:
    """One row for each task and method: solved mazes, a mean over the seeds and the worst of them
    in brackets, and behind the dot the mean of the open cells that are right."""
    sides = next(iter(found.setups.values())).sides
    heads = " | ".join(f"{side}x{side}" for side in sides)
    lines = [
        f"| task | network | parameters | updates, rate | seeds | {heads} | smallest cosine "
        "| certified |",
        "|---|---|---|---|---|" + "---|" * len(sides) + "---|---|",
    ]
    for task in found.setups:
        for method in METHODS:
            own = found.of(task, method)
            if own:
                lines.append(_row(task, method, own, len(sides)))
    return "\n".join(lines)


def _row(task: str, method: str, own: list[Run], sides: int) -> str:
    columns = [([r.exact[k] for r in own], [r.cells[k] for r in own]) for k in range(sides)]
    exact = " | ".join(
        f"{mean(mazes):.1f} ({min(mazes):g}) · {mean(cells):.1f}" for mazes, cells in columns
    )
    cosines = [r.cosine for r in own if r.cosine is not None]
    cosine = f"{min(cosines):.4f}" if cosines else "–"
    passed = [r.certified for r in own if r.certified is not None]
    certified = f"{sum(passed)} of {len(passed)}" if passed else "–"
    return (
        f"| {task} | {TITLES[method]} | {own[0].parameters:,} | {own[0].updates:,}, "
        f"{own[0].rate:g} | {len(own)} | {exact} | {cosine} | {certified} |"
    )


def sentences(found: Study) -> list[str]:
    """Of the map trained by EP: the worst seed at each size, certificates, and what it took."""
    lines = []
    for task, setup in found.setups.items():
        own = found.of(task, "ep")
        if not own:
            continue
        worst = ", ".join(
            f"{min(r.exact[k] for r in own):g} % at {side}x{side}"
            for k, side in enumerate(setup.sides)
        )
        passed = sum(bool(r.certified) for r in own)
        seconds = sum(r.seconds for r in own) / len(own)
        side, counts = setup.sides[-1], ", ".join(map(str, setup.counts))
        lines.append(
            f"* **{task}**: on the worst of {len(own)} seeds {worst} of {counts} test "
            f"mazes; {passed} of {len(own)} certified around the last epoch, in which "
            f"{sum(r.unsettled or 0 for r in own)} relaxations of all seeds did not settle; "
            f"{setup.updates} updates of {setup.batch} mazes, {seconds:.0f} s of processor time; "
            f"the slowest {side}x{side} maze settled in {max(r.steps[-1] for r in own):,} steps."
        )
    return lines


def render_trials(trials: list[dict[str, Any]]) -> list[str]:
    """Every trial on validation mazes, in the order they were made."""
    lines = [
        "| task | network | seed | wall, kernel, bias at first | cooperative | nudge "
        "| steps, tolerance | updates, rate | branching | besides | exact % by side |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for t in trials:
        exact = ", ".join(f"{side}: {e:g}" for side, e in zip(t["sides"], t["exact"], strict=True))
        lines.append(
            f"| {t['task']} | {TITLES[t['method']]} | {t['seed']} | {t['wall']:g}, "
            f"{t['coupling']:g}, {t['bias']:g} | {'yes' if t['cooperative'] else 'no'} "
            f"| {_nudge(t)} | {t['max_steps']}, {t['tol']:g} | {t['updates']}, {t['rate']:.3g} "
            f"| {t['branching']:g} | {_besides(t)} | {exact or 'stopped early'} |"
        )
    return lines


def _besides(trial: dict[str, Any]) -> str:
    """What only a few trials tried, in a few words."""
    words = []
    if trial["clip"] != Setup.clip:
        words.append(f"gradient ≤ {trial['clip']:g}")
    if trial.get("damping", 1) != 1:
        words.append(f"damping {trial['damping']:g}")
    if trial.get("averaging"):
        words.append(f"Adam's average of squares {trial['averaging']:g}")
    if trial.get("jitter"):
        words.append(f"drive of every cell ± {trial['jitter']:g} of a wall's")
    if trial.get("averaged"):
        words.append(f"weights averaged over the last {100 * trial['averaged']:g} %")
    return ", ".join(words) or "–"


def _nudge(trial: dict[str, Any]) -> str:
    """How the gradient was estimated, in a few words."""
    if trial["method"] != "ep":
        return "–"
    words = f"β = {trial['beta']:g}, {trial['nudge']}"
    if trial["max_gain"] is not None:
        words += f", gain ≤ {trial['max_gain']:g}"
    return words + (", settled samples alone" if trial["settled_only"] else "")


TITLES = {
    "ep": "map, EP",
    "implicit": "map, implicit gradient",
    "unrolled": "map, through the relaxation",
    "uncoupled": "map without its kernel",
    "plain-3": "feed-forward, 3 layers",
    "plain-6": "feed-forward, 6 layers",
    "plain-12": "feed-forward, 12 layers",
}
