"""Networks that settle, in six frames, as SVG: a maze until the way is left, a half-covered digit.

The networks are those of `toreqprop play`, trained by EP; every frame is a state of a relaxation by
plain iteration.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from toreqprop import checkpoint
from toreqprop.energies import System
from toreqprop.models import EquilibriumMap, EquilibriumModel, LoopedMLP
from toreqprop.play.maze import TASK, TEST_SEED
from toreqprop.play.recipes import FOLDER, SIDE, covered, lower_half, pictures
from toreqprop.solution import State
from toreqprop.solvers import FixedPoint, Trace, relax
from toreqprop.tasks import get
from toreqprop.tasks.mazes import MARK, WALL, mazes

DIGIT = 3
"""The first test picture of this class is shown."""

MAZE_SIDE = 17
"""The first of the test mazes of this side."""

FRAMES = 6
EDGE, GAP, PAD, BELOW = 132, 14, 12, 34
PAPER, INK = (38, 44, 57), (246, 243, 235)
NEGATIVE, ZERO, POSITIVE = (79, 159, 242), (42, 49, 64), (255, 174, 77)
OPEN, WALLS, MARKED = (52, 56, 66), "#0c0f14", "#93a4ff"
CARD, CAPTION = "#151920", "#747d8c"

Colour = tuple[int, int, int]


def settled(model: EquilibriumModel, x: Tensor, start: State | None = None) -> list[State]:
    """Every state of the relaxation, the start first and the equilibrium last."""
    with torch.no_grad():
        system = System.bind(model.field, x, model.system_parameters())
        trace = Trace(keep_states=True)
        found = relax(system, FixedPoint(tol=1e-6, max_steps=3000), start=start, trace=trace)
    return [*trace.states, found.state]


def chosen(last: int, early: bool) -> list[int]:
    """Steps of the frames: evenly until the end, or most of them where most happens."""
    if early:
        return [0, 1, 2, 4, 8, last]
    return [round(last * k / (FRAMES - 1)) for k in range(FRAMES)]


def mixed(one: Colour, two: Colour, share: float) -> str:
    share = min(1.0, max(0.0, share))
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(one, two, strict=True))


def pixels(values: np.ndarray, left: float, top: float) -> list[str]:
    cell = EDGE / SIDE
    found = []
    for i, value in enumerate(values):
        x, y = left + i % SIDE * cell, top + i // SIDE * cell
        found.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{cell - 1:.2f}" height="{cell - 1:.2f}" rx="2" '
            f'fill="{mixed(PAPER, INK, float(value))}"/>'
        )
    return found


def neurons(values: np.ndarray, order: list[int], left: float, top: float) -> list[str]:
    columns = round(len(values) ** 0.5)
    cell = EDGE / columns
    found = []
    for place, neuron in enumerate(order):
        value = float(values[neuron])
        x = left + (place % columns + 0.5) * cell
        y = top + (place // columns + 0.5) * cell
        colour = mixed(ZERO, NEGATIVE if value < 0 else POSITIVE, abs(value))
        radius = cell * (0.2 + 0.22 * abs(value))
        found.append(f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{radius:.2f}" fill="{colour}"/>')
    return found


def cells(image: np.ndarray, lit: np.ndarray, left: float, top: float) -> list[str]:
    side = image.shape[-1]
    cell = EDGE / side
    found = [f'<rect x="{left}" y="{top}" width="{EDGE}" height="{EDGE}" rx="4" fill="{WALLS}"/>']
    for row, column in np.argwhere(image[WALL] == 0).tolist():
        x, y = left + column * cell, top + row * cell
        colour = mixed(OPEN, POSITIVE, float(lit[row, column]))
        found.append(
            f'<rect x="{x:.2f}" y="{y:.2f}" width="{cell + 0.2:.2f}" height="{cell + 0.2:.2f}" '
            f'fill="{colour}"/>'
        )
    for row, column in np.argwhere(image[MARK] > 0).tolist():
        x, y = left + (column + 0.5) * cell, top + (row + 0.5) * cell
        found.append(f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{0.42 * cell:.2f}" fill="{MARKED}"/>')
    return found


def maze(columns: int) -> str:
    """Every cell begins active; dead ends go out, the way between the two marks stays."""
    model = checkpoint.load(FOLDER / "maze").model
    assert isinstance(model, EquilibriumMap)
    image = mazes(TASK, MAZE_SIDE, 1, TEST_SEED).x
    states = settled(model, torch.from_numpy(image))
    frames = []
    for step in chosen(len(states) - 1, early=False):
        with torch.no_grad():
            lit = model.readout_from(states[step]).softmax(-1)[0, ..., 1].numpy()
        frames.append((step, cells(image[0], lit, PAD, PAD)))
    return strip("The way through a maze is found by settling", frames, EDGE + 2 * PAD, columns)


def digit() -> str:
    """The lower half is covered; above what the network sees, below its neurons."""
    stored = checkpoint.load(FOLDER / "hidden")
    model, record = stored.model, stored.about["play"]
    assert isinstance(model, LoopedMLP)
    data = get("digits").load(record["seed"], False)
    row = int(np.flatnonzero(data.test_y == DIGIT)[0])
    picture, cover = pictures(data)[1][row : row + 1], lower_half(1)
    rest = (torch.zeros(1, model.hidden_features),)
    states = settled(model, covered(picture, cover), rest)
    frames = []
    for step in chosen(len(states) - 1, early=True):
        with torch.no_grad():
            guess = model.readout_from(states[step])
        seen = ((torch.where(cover > 0, guess, picture)[0] + 1) / 2).numpy()
        state = states[step][0][0].numpy()
        shapes = [
            *pixels(seen, PAD, PAD),
            *neurons(state, record["orders"][0], PAD, EDGE + 2 * PAD),
        ]
        frames.append((step, shapes))
    return strip("The covered half of a digit takes shape", frames, 2 * EDGE + 3 * PAD, FRAMES)


def strip(title: str, frames: list[tuple[int, list[str]]], high: int, columns: int) -> str:
    """An SVG of frames, so many in a row, each on a card with its step below."""
    wide = EDGE + 2 * PAD
    width, height = columns * (wide + GAP) - GAP, -(-len(frames) // columns) * (high + BELOW)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="system-ui, sans-serif" font-size="16" text-anchor="middle">',
        f"<title>{title}</title>",
    ]
    for number, (step, shapes) in enumerate(frames):
        left, top = number % columns * (wide + GAP), number // columns * (high + BELOW)
        name = f"step {step}"
        if number == len(frames) - 1:
            name = f"settled: step {step}"
        lines += [
            f'<g transform="translate({left} {top})">',
            f'<rect width="{wide}" height="{high}" rx="12" fill="{CARD}"/>',
            *shapes,
            f'<text x="{wide / 2}" y="{high + 23}" fill="{CAPTION}">{name}</text>',
            "</g>",
        ]
    return "\n".join([*lines, "</svg>", ""])


DRAWN = {"maze": lambda: maze(6), "maze-narrow": lambda: maze(3), "settling": digit}
"""Every picture by its name."""


def draw(folder: Path) -> None:
    for name, picture in DRAWN.items():
        (folder / f"{name}.svg").write_text(picture())


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
