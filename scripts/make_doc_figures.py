"""Draw the figures of the documents with the library itself, into docs/figures/.

Run it after a change of `toreqprop.plots`; the commands are those a reader would use.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import draw_circuit
import draw_completion
import draw_examples
import draw_mazes
import draw_settling
import torch

from toreqprop.bench.cifar.report import curves_figure as cifar_figure
from toreqprop.bench.hardware.pulses_picture import pulses_figure
from toreqprop.bench.language.report import curves_figure as language_figure
from toreqprop.bench.reward.report import curves_figure
from toreqprop.cli import app
from toreqprop.energies import DenseEnergy, DenseParams, LinearNudge, System
from toreqprop.plots import plain_style, save
from toreqprop.plots.devices import faults_figure, map_figure
from toreqprop.plots.style import BLUE, GREEN, INK, VERMILION, finish, new_figure
from toreqprop.solvers import FixedPoint, relax

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "figures"
RESULTS = ROOT / "results" / "hardware"
KINDS = ("relaxation", "trajectories", "alignment", "spectrum", "training")


def landscape(folder: Path) -> Path:
    """The energy of one neuron, free and under two nudges, with the equilibria the solver finds."""
    params = DenseParams(
        torch.tensor([[1.0]]), torch.tensor([0.0]), torch.tensor([[0.5]], dtype=torch.float32)
    )
    system = System.bind(DenseEnergy(), torch.tensor([[0.3]]), params)
    states = torch.linspace(-0.2, 0.98, 200)[:, None]
    wide = System.bind(DenseEnergy(), torch.full((200, 1), 0.3), params)
    looks = (
        (0.0, BLUE, "-", "free"),
        (0.2, VERMILION, "--", "β = +0.2"),
        (-0.2, GREEN, ":", "β = −0.2"),
    )
    with plain_style():
        figure, (axes,) = new_figure(1, width=5.2, height=3.4)
        for beta, colour, style, label in looks:
            at, along = system, wide
            if beta:
                at = system.nudged(LinearNudge((torch.ones(1, 1),), beta))
                along = wide.nudged(LinearNudge((torch.ones(200, 1),), beta))
            found = relax(at, FixedPoint(tol=1e-6, max_steps=200)).state
            axes.plot(states[:, 0], along.energy((states,)), color=colour, ls=style, label=label)
            axes.plot(float(found[0]), float(at.energy(found)), "o", color=INK, ms=5, zorder=5)
        axes.set_title("The nudge tilts the energy; the equilibrium (dot) rolls")
        finish(axes, "state s of one neuron", "E(s) + β·C(s),  C(s) = s")
    return save(figure, folder / "landscape.svg")


def devices(folder: Path) -> None:
    """Accuracy under faults, and noise against resolution, from the reports of the sweep."""
    for name, stem, draw in (
        ("devices", "digits", faults_figure),
        ("devices-mnist", "mnist", faults_figure),
        ("devices-map", "digits-map", map_figure),
    ):
        path = RESULTS / f"{stem}.json"
        if path.exists():
            save(draw(json.loads(path.read_text())), folder / f"{name}.svg")
    save(pulses_figure(), folder / "pulses.svg")


def reward(folder: Path) -> None:
    """Learning curves of policies, from the report of `toreqprop reward`."""
    path = ROOT / "results" / "reward.json"
    if path.exists():
        save(curves_figure(json.loads(path.read_text())), folder / "reward.svg")


def cifar(folder: Path) -> None:
    """Learning curves on photographs, from the report of `toreqprop cifar`."""
    for name in ("cifar10", "cifar10_hybrid"):
        path = ROOT / "results" / f"{name}.json"
        if path.exists():
            save(cifar_figure(json.loads(path.read_text())), folder / f"{name}.svg")


def language(folder: Path) -> None:
    """Bits per character against characters trained on, from the report of `toreqprop language`."""
    path = ROOT / "results" / "language.json"
    if path.exists():
        save(language_figure(json.loads(path.read_text())), folder / "language.svg")


DEVICES = ("devices", "devices-mnist", "devices-map", "pulses")
"""Those of `devices`."""

EXAMPLES = (
    "example-layered-digits", "example-convolutional-mnist", "example-transformer-reversal",
    "example-blocks-digits",
)  # fmt: skip
"""Those that `draw_examples` draws."""

CIRCUITS = ("circuit-schematic", "circuit-settling", "circuit-voltages", "circuit-mismatch")
"""Those that `draw_circuit` draws."""


MAZES = ("maze-front", "maze-way")
"""Those of `draw_mazes`, which trains networks first."""

COMPLETION = ("completion",)
"""That of `draw_completion`, which does too."""


def main(folder: Path = FOLDER) -> None:
    landscape(folder)
    draw_circuit.main(folder)
    draw_settling.draw(folder)  # maze, maze-narrow, settling
    draw_examples.main(folder)
    draw_mazes.main(folder)
    draw_completion.main(folder)
    devices(folder)
    reward(folder)
    cifar(folder)
    language(folder)
    for kind in KINDS:
        app(["plot", kind, "--output", str(folder / f"{kind}.svg")], standalone_mode=False)


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:]))
