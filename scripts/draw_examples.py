"""Figures of the page of examples that no other script draws, with networks of the zoo.

Run it after a change of the zoo: `python scripts/draw_examples.py`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import toreqprop as teq
from toreqprop import plots
from toreqprop.tasks import get
from toreqprop.zoo.recipes import RECIPES, token_loss

FOLDER = Path(__file__).parents[1] / "docs" / "figures"
SAMPLES = 16
ZOO = {
    "layered-digits": ("mnist-layered", F.cross_entropy),
    "convolutional-mnist": ("mnist-conv", F.cross_entropy),
    "transformer-reversal": ("reversal", token_loss),
}


def shipped(name: str, loss: Any) -> Any:
    """How a network of the zoo settles on inputs it was not trained on."""
    data = RECIPES[name].data()
    return plots.relaxation(teq.load(name), data.test_x[:SAMPLES], data.test_y[:SAMPLES], loss=loss)


def block() -> Any:
    """How a block settles inside an ordinary network."""
    torch.manual_seed(0)
    inside = teq.Block(
        nn.Sequential(
            nn.Conv2d(6, 8, 3, stride=2, padding=1), nn.Tanh(),
            nn.Conv2d(8, 8, 3, padding=1), nn.Tanh(),
        ),
        feedback=0.3,
    )  # fmt: skip
    images = torch.from_numpy(get("digits").load(0, False).test_x[:SAMPLES]).reshape(-1, 1, 8, 8)
    with torch.no_grad():
        maps = F.relu(nn.Conv2d(1, 6, 3, padding=1)(images))
        goal = torch.zeros_like(inside(maps))
    return plots.relaxation(inside, maps, goal, loss=F.mse_loss)


def main(folder: Path = FOLDER) -> None:
    for name, (network, loss) in ZOO.items():
        plots.save(shipped(network, loss), folder / f"example-{name}.svg")
    plots.save(block(), folder / "example-blocks-digits.svg")


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:]))
