"""The third network of the page: a map trained on small mazes, asked about larger ones."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from toreqprop import checkpoint
from toreqprop.bench.mazes import (
    EP,
    SETTLED,
    SETUPS,
    Setup,
    build,
    cell_loss,
    score,
    split,
    targets,
    train,
)
from toreqprop.certificate import certify
from toreqprop.errors import CheckpointError
from toreqprop.models import EquilibriumMap
from toreqprop.play.export import encoded
from toreqprop.tasks.mazes import MARK, WALL, mazes

TASK = "maze-path"
SETUP = replace(SETUPS[TASK], sides=(9, 17, 33), counts=(100, 100, 100))
"""That of the study, with the sides that fit on the page."""

TEST_SEED = 1_000_003
"""Of the mazes that the page shows, which are test mazes."""

EXAMPLES = 4
"""Test mazes of each side that the page carries; it draws others at random."""


def build_maze(folder: Path, seed: int, setup: Setup = SETUP) -> dict[str, Any]:
    """Train the map into ``folder``/maze, a checkpoint with its record; returns the record."""
    found = split(setup, seed)
    data, tests = found.train, found.scored
    model = build(setup, EP, seed)
    assert isinstance(model, EquilibriumMap)
    train(setup, model, data, seed, *setup.recipe(EP))
    scores = [score(model, part) for part in tests]
    # What is asked later settles as far as what was scored.
    model.solver, model.on_failure = SETTLED, "warn"
    batch = torch.from_numpy(data.x[: setup.batch]), targets(data)[: setup.batch]
    certificate = certify(model, *batch, loss=cell_loss)
    about = {
        "command": f"toreqprop play --train FOLDER --seed {seed}",
        "seed": seed,
        "recipe": asdict(setup),
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
    for side in SETUP.sides:
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
