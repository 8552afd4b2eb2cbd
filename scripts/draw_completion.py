"""Draw digits of which half is hidden: as they are, covered, completed by EP and by its twin.

The networks are those of the first seed of `toreqprop completion`, trained here again.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import torch
from torch.nn import functional as F

from toreqprop.bench import completion as study
from toreqprop.plots import plain_style, save
from toreqprop.plots.style import VERMILION, new_figure

ROOT = Path(__file__).parents[1]
SEED, DIGITS, COLUMNS = 42, 8, 2
"""The first test images are drawn, under masks of both kinds in turn."""


def draw(path: Path) -> Path:
    data = study.pictures(study.SETUP.task, SEED, validation=False)
    pixels = data.test.shape[1]
    picture, side = data.test[:DIGITS], math.isqrt(pixels)
    generator = torch.Generator().manual_seed(SEED)
    kinds = [study.masks(kind, study.TRAINED, DIGITS, pixels, generator) for kind in study.KINDS]
    seen = torch.stack([kinds[k % 2][k] for k in range(DIGITS)])
    x = study.given(picture, seen, data.classes)
    rows = {"original": picture, "seen": torch.where(seen > 0, picture, torch.nan)}
    for name, method in (("settled, EP", study.EP), ("feed-forward", "twin")):
        model, _ = study.trained(study.SETUPS[method], method, SEED, data)
        with torch.no_grad():
            rows[name] = model(x)[:, :pixels]
    with plain_style():
        figure, panels = new_figure(len(rows), width=9, height=5)
        for axes, (title, found) in zip(panels, rows.items(), strict=True):
            images = (found + data.mean).reshape(-1, COLUMNS, side, side)
            framed = F.pad(images, (1, 1, 1, 1), value=torch.nan).permute(0, 2, 1, 3)
            shown = framed.reshape(-1, COLUMNS * (side + 2)).numpy()
            axes.imshow(shown, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
            axes.set_facecolor(VERMILION)
            axes.set_title(title)
            axes.set_xticks([])
            axes.set_yticks([])
    return save(figure, path)


def main(folder: Path = ROOT / "docs" / "figures") -> None:
    torch.set_num_threads(1)
    draw(folder / "completion.svg")


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:]))
