"""How far credit travels in a map, and whether a map needs it to travel far.

A nudge of one cell moves the equilibrium around it, and how far it moves a cell is what that cell's
drive learns of the loss at the nudged one. Along trainings by EP this is measured between all open
cells of a maze, by the steps between them. And maps are trained on reachability with targets near
the start alone, or far from it alone.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from toreqprop.bench import mazes as study
from toreqprop.energies import LinearNudge, Opposed, System
from toreqprop.evidence import Measurement
from toreqprop.models import EquilibriumMap
from toreqprop.solvers import FixedPoint, relax, relax_pair
from toreqprop.tasks.mazes import MARK, MAZE_TASKS, Mazes, distances

SEED = 140
POINTS = (0.0, 0.125, 0.25, 0.5, 1.0)
"""Shares of a training after which credit is measured."""
SIDE, COUNT = 17, 4
"""The mazes it is measured in."""
NUDGE = 1e-4
SETTLED = FixedPoint(tol=1e-9, max_steps=20_000)
SHOWN = (1, 2, 3, 4, 6, 8, 12)
NEAR = 6
"""Steps from the start up to which a target is near."""
FEW = 0.01
"""The share of its own credit below which a cell is said to learn nothing."""


@torch.no_grad()
def credit(model: EquilibriumMap, found: Mazes) -> list[float]:
    """How far a weak nudge of one cell moves the cells at each number of steps from it, in shares
    of how far it moves the nudged cells: a mean over all pairs of open cells, in float64."""
    model = copy.deepcopy(model).double()
    moved, pairs = np.zeros(found.x[0, 0].size), np.zeros(found.x[0, 0].size)
    for image, is_open in zip(found.x, found.open, strict=True):
        cells = np.argwhere(is_open)
        every = np.arange(len(cells)), cells[:, 0], cells[:, 1]
        marked = np.repeat(image[None], len(cells), 0)
        marked[:, MARK] = 0
        marked[every[0], MARK, every[1], every[2]] = 1
        apart = np.stack([distances(one) for one in marked])
        x = torch.from_numpy(image).double().expand(len(cells), -1, -1, -1)
        system = System.bind(model.field, x, model.system_parameters())
        free = relax(system, SETTLED, kernel="auto")
        direction = torch.zeros_like(free.state[0])
        direction[every[0], :, every[1], every[2]] = 1
        nudge = Opposed(LinearNudge((direction,), NUDGE), LinearNudge((direction,), -NUDGE))
        both = relax_pair(system, nudge, SETTLED, free.state, memory=free.memory, kernel="auto")
        shift = both.shift[0].abs().sum(1).numpy()
        joined = apart >= 0
        moved += np.bincount(apart[joined], shift[joined], len(moved))
        pairs += np.bincount(apart[joined], minlength=len(pairs))
    mean = moved[pairs > 0] / pairs[pairs > 0]
    return [float(share) for share in mean / mean[0]]


def along_training(task: str) -> dict[str, Any]:
    """Loss of the batch and credit by distance at every point of a training by EP."""
    setup = study.SETUPS[task]
    data = study.split(setup, SEED, validation=True)
    scored = data.scored[setup.sides.index(SIDE)]
    mazes = Mazes(scored.x[:COUNT], scored.y[:COUNT])
    model = study.build(setup, study.EP, SEED)
    assert isinstance(model, EquilibriumMap)
    updates, rate = setup.recipe(study.EP)
    wanted = {round(share * updates) for share in POINTS}
    points = [{"update": 0, "credit": credit(model, mazes)}]
    trained = study.training(setup, model, data.train, SEED, updates, rate)
    for update, loss in enumerate(trained, 1):
        if update in wanted:
            points.append({"update": update, "loss": loss, "credit": credit(model, mazes)})
    return {"task": task, "points": points}


def with_targets(which: str) -> dict[str, Any]:
    """Percentages of validation mazes of each side that a map by EP solves whose targets on the
    ways from the start were those near it, those far from it, or all; cells that are cut off have
    theirs."""
    setup = replace(study.SETUPS["maze-reach"], counts=(100, 100, 100, 1))
    data = study.split(setup, SEED, validation=True)
    y = study.targets(data.train)
    steps = torch.from_numpy(np.stack([distances(image) for image in data.train.x]))
    ignored = {"near": steps > NEAR, "far": (steps >= 0) & (steps <= NEAR), "all": steps < -1}
    model = study.build(setup, study.EP, SEED)
    y = y.masked_fill(ignored[which], study.IGNORED)
    for _ in study.training(setup, model, data.train, SEED, *setup.recipe(study.EP), y):
        pass
    scores = [study.score(model, found) for found in data.scored[:-1]]
    return {"targets": which, "sides": setup.sides[:-1], "scores": scores}


def measurements() -> list[Measurement]:
    """A training of each task, and the trainings with some of the targets."""
    return [
        *(
            Measurement("maze-credit", task, f"{__name__}:along_training", (("task", task),))
            for task in MAZE_TASKS
        ),
        *(
            Measurement("maze-credit", which, f"{__name__}:with_targets", (("which", which),))
            for which in ("all", "near", "far")
        ),
    ]


def assemble(found: list[dict[str, Any]]) -> dict[str, Any]:
    """What is kept of the measurements."""
    return {
        "credit": [part for part in found if "points" in part],
        "targets": [part for part in found if "targets" in part],
    }


def render_credit(parts: list[dict[str, Any]]) -> list[str]:
    """Credit in percent at some distances, and from where on it is less than `FEW`."""
    heads = " | ".join(map(str, SHOWN))
    lines = [
        f"| task | update | loss | {heads} | below {FEW:.0%} from, steps |",
        "|---|---|---|" + "---|" * (len(SHOWN) + 1),
    ]
    for part in parts:
        for point in part["points"]:
            shares = point["credit"]
            cells = " | ".join(_percent(shares[steps]) for steps in SHOWN)
            loss = f"{point['loss']:.2f}" if "loss" in point else "–"
            least = next((d for d, share in enumerate(shares) if share < FEW), None)
            where = "–" if least is None else f"{least}"
            lines.append(f"| {part['task']} | {point['update']} | {loss} | {cells} | {where} |")
    return lines


def _percent(share: float) -> str:
    return f"{100 * share:.2g}" if share >= 1e-5 else "< 0.001"


def render_targets(parts: list[dict[str, Any]]) -> list[str]:
    """Solved mazes and right cells of each side, by where the targets were."""
    heads = " | ".join(f"{side}x{side}" for side in parts[0]["sides"])
    lines = [f"| targets | {heads} |", "|---|" + "---|" * len(parts[0]["sides"])]
    words = {
        "all": "all",
        "near": f"at most {NEAR} steps from the start",
        "far": f"more than {NEAR} steps from the start",
    }
    for part in parts:
        cells = " | ".join(f"{exact:g} · {cells:.1f}" for exact, cells, _ in part["scores"])
        lines.append(f"| {words[part['targets']]} | {cells} |")
    return lines


def render_markdown(found: dict[str, Any]) -> str:
    """Both tables."""
    return "\n".join([*render_credit(found["credit"]), "", *render_targets(found["targets"])])
