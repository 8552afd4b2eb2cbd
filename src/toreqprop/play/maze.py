"""The third network of the page: a map trained on small mazes, asked about larger ones."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from toreqprop import checkpoint
from toreqprop.bench.mazes import EP, RATES, Setup, build, score, split, train
from toreqprop.errors import CheckpointError
from toreqprop.models import EquilibriumMap
from toreqprop.play.export import encoded
from toreqprop.tasks.mazes import MARK, WALL, mazes

TASK = "maze-path"
SIDES = (9, 17, 33)
"""Of the test mazes that its record is about."""

EXAMPLES = 4
"""Test mazes of each side that the page carries; it draws others at random."""


def build_maze(folder: Path, seed: int) -> dict[str, Any]:
    """Train the map into ``folder``/maze, a checkpoint with its record; returns the record."""
    setup = Setup(sides=SIDES, counts=(100,) * len(SIDES))
    data = split(setup, TASK, seed)
    model = build(setup, TASK, EP, seed)
    assert isinstance(model, EquilibriumMap)
    trained = train(setup, model, data.train, seed, RATES[EP])
    scores = [score(model, found) for found in data.scored]
    about = {
        "command": f"toreqprop play --train FOLDER --seed {seed}",
        "seed": seed,
        "setup": asdict(setup),
        "trained_on": setup.side,
        "sides": list(SIDES),
        "test_samples": len(data.scored[0]),
        "exact": [exact for exact, *_ in scores],
        "steps": [steps for *_, steps in scores],
        "parameters": sum(p.numel() for p in model.parameters()),
        "certificate": {"ok": trained.certified, "worst_cosine": trained.cosine},
    }
    model.on_failure = "warn"
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
    for side in SIDES:
        images = mazes(TASK, side, EXAMPLES, 1_000_003)  # test mazes: see `bench.mazes`
        for x in images.x:
            found.append(
                {
                    "side": side,
                    "walls": encoded(x[WALL], np.uint8),
                    "marks": np.flatnonzero(x[MARK]).tolist(),
                }
            )
    return found
