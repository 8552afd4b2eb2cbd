"""The third network of the page: a map trained on small mazes, asked about larger ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop import checkpoint
from toreqprop.certificate import certify
from toreqprop.errors import CheckpointError
from toreqprop.models import EquilibriumMap
from toreqprop.play.export import encoded
from toreqprop.solvers import FixedPoint
from toreqprop.tasks.mazes import MARK, WALL, Mazes, mazes

TASK = "maze-path"
SIDES, COUNT = (9, 17, 33), 100
TEST_SEED, VALIDATION_SEED = 1_000_003, 1_000_033
"""Of the mazes that its record is about, and of those that choose among trainings."""

EXAMPLES = 4
"""Test mazes of each side that the page carries; it draws others at random."""


@dataclass(frozen=True)
class MazeRecipe:
    """The map and its training: Adam with one cycle of its rate, limited gradients.

    The readout begins at zero, drives at ``wall`` and ``mark`` in the cell itself, and every cell a
    little too quiet (``bias``): the kernel grows until activity holds. Trainings from different
    seeds differ much; of ``tries`` the one that solves most validation mazes is kept.
    """

    side: int = 9
    mazes: int = 4096
    updates: int = 250
    batch: int = 64
    rate: float = 0.02
    clip: float = 0.3
    coupling: float = 0.3
    bias: float = -0.5
    wall: float = -1.5
    mark: float = 1.5
    tol: float = 1e-4
    max_steps: int = 120
    tries: int = 3

    def network(self) -> EquilibriumMap:
        """Untrained, from torch's generator."""
        solver = FixedPoint(tol=self.tol, max_steps=self.max_steps)
        model = EquilibriumMap(
            2, coupling=self.coupling, start=1.0, solver=solver, on_failure="ignore"
        )
        with torch.no_grad():
            for part in (*model.drive.parameters(), *model.readout.parameters()):
                part.zero_()
            model.drive.weight[:, WALL, 1, 1] = self.wall
            model.drive.weight[:, MARK, 1, 1] = self.mark
            if model.drive.bias is not None:
                model.drive.bias.fill_(self.bias)
        return model


MAZE = MazeRecipe()


def cell_loss(output: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy, averaged over the open cells."""
    return F.cross_entropy(output.flatten(0, -2), target.flatten())


def targets(found: Mazes) -> Tensor:
    """The class of every open cell; walls are left out of the loss."""
    return torch.from_numpy(np.where(found.open, found.y, -100))


def train(recipe: MazeRecipe, data: Mazes, seed: int) -> EquilibriumMap:
    """A map trained by EP; the last weights count."""
    torch.manual_seed(seed)
    model = recipe.network()
    x, y = torch.from_numpy(data.x), targets(data)
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.rate, total_steps=recipe.updates
    )
    for chosen in islice(_batches(len(x), recipe.batch, seed), recipe.updates):
        optimizer.zero_grad()
        cell_loss(model(x[chosen]), y[chosen]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimizer.step()
        schedule.step()
    # A front that creeps is one cell of thousands: what is asked later settles further.
    model.solver, model.on_failure = FixedPoint(tol=1e-6, max_steps=20_000), "warn"
    return model


def _batches(count: int, size: int, seed: int) -> Iterator[Tensor]:
    """Shuffled rows, epoch after epoch."""
    order = torch.Generator().manual_seed(seed)
    while True:
        yield from torch.randperm(count, generator=order).split(size)


@torch.no_grad()
def solved(model: EquilibriumMap, found: Mazes) -> tuple[float, int]:
    """Percentage of mazes with every open cell right, and the steps of the slowest."""
    right, steps = 0, 0
    for number in range(len(found)):
        solution = model.equilibrium(torch.from_numpy(found.x[[number]]))
        answer = model.readout_from(solution.state).argmax(-1)[0].numpy()
        right += bool((answer == found.y[number])[found.open[number]].all())
        steps = max(steps, solution.steps)
    return 100 * right / len(found), steps


def build_maze(folder: Path, seed: int, recipe: MazeRecipe = MAZE) -> dict[str, Any]:
    """Train the map into ``folder``/maze, a checkpoint with its record; returns the record."""
    tests = [mazes(TASK, side, COUNT, TEST_SEED) for side in SIDES]
    held = [mazes(TASK, side, COUNT // 4, VALIDATION_SEED) for side in SIDES]
    best, trials = -1.0, []
    for trial in range(seed, seed + recipe.tries):
        found = mazes(TASK, recipe.side, recipe.mazes, trial, without=[tests[0], held[0]])
        network = train(recipe, found, trial)
        shares = [solved(network, part)[0] for part in held]
        trials.append({"seed": trial, "validation_exact": shares})
        if sum(shares) > best:
            best, model, data = sum(shares), network, found
    scores = [solved(model, found) for found in tests]
    batch = torch.from_numpy(data.x[: recipe.batch]), targets(data)[: recipe.batch]
    certificate = certify(model, *batch, loss=cell_loss)
    about = {
        "command": f"toreqprop play --train FOLDER --seed {seed}",
        "seed": seed,
        "recipe": asdict(recipe),
        "trials": trials,
        "trained_on": recipe.side,
        "sides": list(SIDES),
        "test_samples": COUNT,
        "exact": [exact for exact, _ in scores],
        "steps": [steps for _, steps in scores],
        "parameters": sum(p.numel() for p in model.parameters()),
        "certificate": {
            "ok": certificate.ok,
            "verdict": certificate.verdict,
            "samples": recipe.batch,
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
    for side in SIDES:
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
