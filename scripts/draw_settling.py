"""Six frames of a network that settles, as an SVG: the lower half of a digit takes shape.

The network is the one of `toreqprop play` that sees what is covered; every frame is a state of its
relaxation by plain iteration, from rest.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from toreqprop import checkpoint
from toreqprop.energies import System
from toreqprop.models import LoopedMLP
from toreqprop.play.recipes import FOLDER, SIDE, covered, lower_half, pictures
from toreqprop.solvers import FixedPoint, Trace, relax
from toreqprop.tasks import get

DIGIT = 3
"""The first test picture of this class is shown."""

STEPS = (0, 1, 2, 4, 8)
"""Frames, and then the last."""

EDGE, GAP, PAD, BELOW = 132, 14, 12, 34
PAPER, INK = (38, 44, 57), (246, 243, 235)
NEGATIVE, ZERO, POSITIVE = (79, 159, 242), (42, 49, 64), (255, 174, 77)
CARD, CAPTION = "#151920", "#747d8c"

Colour = tuple[int, int, int]


def frames() -> tuple[list[tuple[int, np.ndarray, np.ndarray]], list[int]]:
    """(step, picture, neurons) of each frame, and the neuron at each place."""
    stored = checkpoint.load(FOLDER / "hidden")
    model, record = stored.model, stored.about["play"]
    assert isinstance(model, LoopedMLP)
    data = get("digits").load(record["seed"], False)
    row = int(np.flatnonzero(data.test_y == DIGIT)[0])
    picture = pictures(data)[1][row : row + 1]
    cover = lower_half(1)
    with torch.no_grad():
        system = System.bind(model.field, covered(picture, cover), model.system_parameters())
        trace = Trace(keep_states=True)
        rest = (torch.zeros(1, model.hidden_features),)
        found = relax(system, FixedPoint(tol=1e-6, max_steps=500), start=rest, trace=trace)
        states = [*(s[0] for s in trace.states), found.state[0]]
        shown = []
        for step in (*STEPS, found.steps):
            guess = model.readout_from((states[step],))
            seen = torch.where(cover > 0, guess, picture)
            shown.append((step, ((seen[0] + 1) / 2).numpy(), states[step][0].numpy()))
    return shown, record["orders"][0]


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


def drawn(columns: int = 6) -> str:
    """The SVG, with that many frames in a row."""
    shown, order = frames()
    wide, high = EDGE + 2 * PAD, 2 * EDGE + 3 * PAD
    width, height = columns * (wide + GAP) - GAP, -(-len(shown) // columns) * (high + BELOW)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="system-ui, sans-serif" font-size="16" text-anchor="middle">',
        "<title>The covered half of a digit takes shape while a network settles</title>",
    ]
    for number, (step, picture, state) in enumerate(shown):
        left, top = number % columns * (wide + GAP), number // columns * (high + BELOW)
        name = "at rest" if step == 0 else f"step {step}"
        if number == len(shown) - 1:
            name = f"settled: step {step}"
        lines += [
            f'<rect x="{left}" y="{top}" width="{wide}" height="{high}" rx="12" fill="{CARD}"/>',
            *pixels(picture, left + PAD, top + PAD),
            *neurons(state, order, left + PAD, top + EDGE + 2 * PAD),
            f'<text x="{left + wide / 2}" y="{top + high + 23}" fill="{CAPTION}">{name}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def draw(folder: Path) -> None:
    (folder / "settling.svg").write_text(drawn())
    (folder / "settling-narrow.svg").write_text(drawn(3))


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
