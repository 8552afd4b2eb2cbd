"""Draw how a map settles in a maze: activity spreads from a start, or leaves the dead ends.

The networks are those of the first seed of `toreqprop mazes --method ep`, trained here again.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from toreqprop.bench.mazes import EP, SETTLED, SETUPS, Setup, build, split, train
from toreqprop.models import EquilibriumMap
from toreqprop.plots import plain_style, save
from toreqprop.plots.style import INK
from toreqprop.solvers import Trace
from toreqprop.tasks.mazes import MARK, distances

ROOT = Path(__file__).parents[1]
SHARES = (0.02, 0.15, 0.4, 0.7, 1.0)
"""Of the steps until the maze has settled: when a picture is taken."""
SIDE = 33
SEED = 42


def film(setup: Setup) -> tuple[np.ndarray, np.ndarray, list[tuple[int, np.ndarray]]]:
    """A test maze, its target, and the probability of class one in each cell as it settles."""
    data = split(setup, SEED)
    model = build(setup, EP, SEED)
    assert isinstance(model, EquilibriumMap)
    train(setup, model, data.train, SEED, *setup.recipe(EP))
    mazes = data.scored[setup.sides.index(SIDE)]
    far = [distances(x)[y > 0].max() for x, y in zip(mazes.x, mazes.y, strict=True)]
    chosen = int(np.argsort(far)[-len(far) // 4])
    model.solver, trace = SETTLED, Trace(keep_states=True)
    with torch.no_grad():
        model.equilibrium(torch.from_numpy(mazes.x[[chosen]]), trace=trace)
        last = len(trace.images) - 1
        steps = [round(share * last) for share in SHARES]
        frames = [(k + 1, _probability(model, trace.images[k])) for k in steps]
    return mazes.x[chosen], mazes.y[chosen], frames


def _probability(model: EquilibriumMap, state: tuple[torch.Tensor, ...]) -> np.ndarray:
    return model.readout_from(state).softmax(-1)[0, ..., 1].numpy()


def draw(path: Path) -> Path:
    """A row of frames for each task; walls are dark, the last picture is the target."""
    from matplotlib.figure import Figure

    with plain_style():
        figure = Figure(figsize=(11, 4.1), layout="constrained", facecolor="white")
        rows = figure.subplots(2, len(SHARES) + 1)
        for row, (task, setup) in zip(rows, SETUPS.items(), strict=True):
            image, target, frames = film(setup)
            walls = image[0] > 0
            pictures = [(f"step {step}", found) for step, found in frames]
            for axes, (title, found) in zip(
                row, [*pictures, ("target", target.astype(float))], strict=True
            ):
                axes.imshow(
                    np.ma.masked_where(walls, found), cmap="viridis", vmin=0, vmax=1,
                    interpolation="nearest",
                )  # fmt: skip
                axes.set_facecolor(INK)
                marks = np.argwhere(image[MARK] > 0)
                axes.plot(marks[:, 1], marks[:, 0], "o", color="#d62728", ms=2.5)
                axes.set_title(title)
                axes.set_xticks([])
                axes.set_yticks([])
            row[0].set_ylabel(task)
    return save(figure, path)


def main(folder: Path = ROOT / "docs" / "figures") -> None:
    torch.set_num_threads(1)
    draw(folder / "maze-front.svg")


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:]))
