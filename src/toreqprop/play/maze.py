"""The third network of the page: a map trained on small mazes, asked about larger ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from toreqprop import checkpoint
from toreqprop.bench.mazes import EP, SETTLED, Setup, build, cell_loss, score, targets, train
from toreqprop.certificate import certify
from toreqprop.errors import CheckpointError
from toreqprop.models import EquilibriumMap
from toreqprop.play.export import encoded
from toreqprop.tasks.mazes import MARK, WALL, mazes

TASK = "maze-path"
TEST_SEED, VALIDATION_SEED = 1_000_003, 1_000_033
"""Of the mazes that its record is about, and of those that choose among trainings."""

EXAMPLES = 4
"""Test mazes of each side that the page carries; it draws others at random."""


@dataclass(frozen=True)
class MazeRecipe:
    """How the map is trained. Trainings from different seeds differ much; of ``tries`` the one that
    solves most validation mazes is kept, a quarter as many as there are test mazes."""

    setup: Setup = field(
        default_factory=lambda: Setup(
            TASK, updates=250, rate=0.02, bias=-0.5, beta=1e-3, max_gain=2.0, wall=-1.5,
            sides=(9, 17, 33), counts=(100, 100, 100),
        )
    )  # fmt: skip
    tries: int = 3


MAZE = MazeRecipe()


def build_maze(folder: Path, seed: int, recipe: MazeRecipe = MAZE) -> dict[str, Any]:
    """Train the map into ``folder``/maze, a checkpoint with its record; returns the record."""
    setup = recipe.setup
    sizes = list(zip(setup.sides, setup.counts, strict=True))
    tests = [mazes(TASK, side, count, TEST_SEED) for side, count in sizes]
    held = [mazes(TASK, side, max(1, count // 4), VALIDATION_SEED) for side, count in sizes]
    best, trials = -1.0, []
    for trial in range(seed, seed + recipe.tries):
        found = mazes(TASK, setup.side, setup.mazes, trial, without=[tests[0], held[0]])
        network = build(setup, EP, trial)
        train(setup, network, found, trial, setup.updates, setup.rate)
        shares = [score(network, part)[0] for part in held]
        trials.append({"seed": trial, "validation_exact": shares})
        if sum(shares) > best:
            best, model, data = sum(shares), network, found
    assert isinstance(model, EquilibriumMap)
    scores = [score(model, found) for found in tests]
    # What is asked later settles as far as what was scored.
    model.solver, model.on_failure = SETTLED, "warn"
    batch = torch.from_numpy(data.x[: setup.batch]), targets(data)[: setup.batch]
    certificate = certify(model, *batch, loss=cell_loss)
    about = {
        "command": f"toreqprop play --train FOLDER --seed {seed}",
        "seed": seed,
        "recipe": asdict(recipe),
        "trials": trials,
        "trained_on": setup.side,
        "sides": list(setup.sides),
        "test_samples": setup.counts[0],
        "exact": [exact for exact, _, _ in scores],
        "steps": [steps for _, _, steps in scores],
        "parameters": sum(p.numel() for p in model.parameters()),
        "certificate": {
            "ok": certificate.ok,
            "verdict": certificate.verdict,
            "samples": setup.batch,
            "worst_cosine": certificate.min_cosine,
            "contraction": certificate.contraction,
        },
    }
    checkpoint.save(folder / "maze", checkpoint.Checkpoint(model, about={"play": about}))
    return about


@torch.no_grad()
def maze_data(folder: Path) -> dict[str, Any]:
    """The map in ``folder``/maze as the page takes it, with test mazes.

    Raises:
        CheckpointError: there is none.
    """
    stored = checkpoint.load(folder / "maze")
    record, model = stored.about.get("play"), stored.model
    if not isinstance(record, dict) or not isinstance(model, EquilibriumMap):
        raise CheckpointError(
            f"The checkpoint in {folder / 'maze'} is none of the page's: "
            "write it with `toreqprop play --train FOLDER`."
        )
    return {**map_data(model), "mazes": _examples(), "record": record}


def map_data(model: EquilibriumMap) -> dict[str, Any]:
    """Kernels, biases and readout of a map of sigmoid neurons."""
    drive, bias, kernel = model.system_parameters()
    parts = {
        "drive": drive, "bias": bias, "kernel": kernel,
        "readout": model.readout.weight, "offset": model.readout.bias,
    }  # fmt: skip
    return {
        "inputs": model.inputs,
        "channels": model.channels,
        "outputs": model.outputs,
        "size": model.kernel_size,
        "start": float(model.start),
        "weights": {name: encoded(part) for name, part in parts.items()},
    }


def _examples() -> list[dict[str, Any]]:
    found = []
    for side in MAZE.setup.sides:
        images = mazes(TASK, side, EXAMPLES, TEST_SEED)
        for x in images.x:
            found.append(
                {
                    "side": side,
                    "walls": encoded(x[WALL], np.uint8),
                    "marks": np.flatnonzero(x[MARK]).tolist(),
                }
            )
    return found
