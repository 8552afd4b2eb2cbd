"""Draw how maps settle in a maze: activity spreads from the start, or is withdrawn from dead ends.

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
from toreqprop.plots.style import INK, VERMILION, new_figure
from toreqprop.solvers import Trace
from toreqprop.tasks.mazes import MARK, distances

ROOT = Path(__file__).parents[1]
SHARES = (0.02, 0.15, 0.4, 0.7, 1.0)
"""Of the steps until the maze has settled: when a picture is taken."""
SIDE, SEED = 33, 42
FILMS = {"maze-front": "maze-reach", "maze-way": "maze-path"}
"""The task of each picture."""


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


def draw(task: str, path: Path) -> Path:
    """A row of frames; walls are dark, the last picture is the target."""
    image, target, frames = film(SETUPS[task])
    walls, marks = image[0] > 0, np.argwhere(image[MARK] > 0)
    pictures = [(f"step {step}", found) for step, found in frames]
    pictures.append(("target", target.astype(float)))
    with plain_style():
        figure, row = new_figure(len(pictures), width=11, height=2.1)
        for axes, (title, found) in zip(row, pictures, strict=True):
            shown = np.ma.masked_where(walls, found)
            axes.imshow(shown, cmap="viridis", vmin=0, vmax=1, interpolation="nearest")
            axes.set_facecolor(INK)
            axes.plot(marks[:, 1], marks[:, 0], "o", color=VERMILION, ms=3)
            axes.set_title(title)
            axes.set_xticks([])
            axes.set_yticks([])
    return save(figure, path)


def main(folder: Path = ROOT / "docs" / "figures") -> None:
    torch.set_num_threads(1)
    for name, task in FILMS.items():
        draw(task, folder / f"{name}.svg")


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:]))
