"""The networks themselves: made by `build`, read by `load`, with a record that nobody types."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from toreqprop import __version__, checks
from toreqprop import checkpoint as checkpoints
from toreqprop.certificate import certify
from toreqprop.checkpoint import Checkpoint
from toreqprop.errors import InvalidInputError
from toreqprop.models import EquilibriumModel
from toreqprop.training import accuracy, fit
from toreqprop.zoo.recipes import RECIPES, Data

FOLDER = Path(__file__).parent / "networks"
CERTIFIED, SLICE = 32, 200
"""Training samples the certificate is measured on; test samples a reader can measure quickly."""


def load(name: str) -> EquilibriumModel:
    """A trained network of the zoo by its name, such as ``teq.load("digits")``.

    `record` says what it was trained on, what it reached and with which command.

    Raises:
        InvalidInputError: there is no such network; the message lists those there are.
    """
    model = checkpoints.load(_folder(name)).model
    assert isinstance(model, EquilibriumModel)
    return model.eval()


def record(name: str) -> dict[str, Any]:
    """What is known of a network: command, training, test accuracy, certificate, size."""
    text = checkpoints.describe(_folder(name))
    assert text is not None
    return json.loads(text)["about"]


def _folder(name: str) -> Path:
    known = sorted(path.name for path in FOLDER.glob("*") if checkpoints.exists(path))
    if not isinstance(name, str) or name not in known:
        raise InvalidInputError(
            f"No network is called {checks.shown(name)}; those there are: {', '.join(known)}."
        )
    return FOLDER / name


def build(name: str, seed: int, folder: Path) -> dict[str, Any]:
    """Train a network as its recipe says, measure it, and keep both in ``folder / name``.

    Test data is looked at once, after training.
    """
    recipe = RECIPES[checks.choice("name", name, tuple(RECIPES))]
    data, training = recipe.data(), replace(recipe.training, seed=seed)
    torch.manual_seed(seed)
    model = recipe.build()
    data = _typed(data, model)
    fit(model, data.x, data.y, training, loss=recipe.loss)
    proof = certify(model, data.x[:CERTIFIED], data.y[:CERTIFIED], loss=recipe.loss)
    about = {
        "name": name,
        "title": recipe.title,
        "command": f"toreqprop zoo build {name}" + ("" if seed == 42 else f" --seed {seed}"),
        "version": __version__,
        "training": asdict(training),
        "samples": len(data.x),
        "test_samples": len(data.test_x),
        "test_accuracy": accuracy(model, data.test_x, data.test_y),
        "first_test_samples": SLICE,
        "first_test_accuracy": accuracy(model, data.test_x[:SLICE], data.test_y[:SLICE]),
        "chance": data.chance,
        "certificate": {
            "ok": proof.ok,
            "min_cosine": proof.min_cosine,
            "samples": CERTIFIED,
            "verdict": proof.verdict,
        },
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    checkpoints.save(folder / name, Checkpoint(model, about=about))
    return about


def measured(name: str) -> float:
    """The accuracy of a shipped network on the first test samples, measured now."""
    model = load(name)
    data = _typed(RECIPES[name].data(), model)
    return accuracy(model, data.test_x[:SLICE], data.test_y[:SLICE])


def _typed(data: Data, model: EquilibriumModel) -> Data:
    """Inputs in the model's precision; tokens stay whole numbers."""
    dtype = next(model.parameters()).dtype

    def as_model(x: Tensor) -> Tensor:
        return x.to(dtype) if x.is_floating_point() else x

    return Data(as_model(data.x), data.y, as_model(data.test_x), data.test_y, data.chance)
