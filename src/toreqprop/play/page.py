"""The page: one HTML file with its style, its programs and the networks' weights inside."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

import toreqprop
from toreqprop import checkpoint
from toreqprop.certificate import certify
from toreqprop.errors import CheckpointError, UnsupportedModelError
from toreqprop.models import EquilibriumModel
from toreqprop.play.export import image_side, network_data, sample_data, scaling_data
from toreqprop.play.layout import layer_orders
from toreqprop.play.maze import maze_data
from toreqprop.play.recipes import CERTIFIED, FOLDER, pictures
from toreqprop.tasks import Dataset, get
from toreqprop.training import accuracy

PARTS = (
    "page.css", "engine.js", "maps.js", "drawing.js", "nudging.js", "page.js", "maze.js",
    "controls.js",
)  # fmt: skip
"""What page.html is filled with, each in its place."""


def shipped_data(folder: Path = FOLDER) -> dict[str, Any]:
    """The three networks in ``folder``, with samples and records, for the page.

    Raises:
        CheckpointError: one of them is not there.
    """
    found = {}
    for name in ("digits", "hidden"):
        stored = checkpoint.load(folder / name)
        record = stored.about.get("play")
        if not isinstance(record, dict) or not isinstance(stored.model, EquilibriumModel):
            raise CheckpointError(
                f"The checkpoint in {folder / name} is none of the page's: "
                "write them with `toreqprop play --train FOLDER`."
            )
        data = get("digits").load(record["seed"], False)
        found[name] = {
            **placed(stored.model, record["orders"]),
            "task": "digits",
            "labels": [str(k) for k in range(data.classes)],
            "samples": sample_data(data),
            "record": {k: v for k, v in record.items() if k != "orders"},
        }
    found["maze"] = maze_data(folder)
    found["digits"]["scaling"] = scaling_data(data)
    found["hidden"]["mean"] = ((pictures(data)[0].mean(0) + 1) / 2).tolist()
    return found


def placed(model: EquilibriumModel, orders: list[list[int]]) -> dict[str, Any]:
    """The network, with the neuron at each place of every layer's grid."""
    found = network_data(model)
    for layer, order in zip(found["layers"], orders, strict=True):
        layer["order"] = order
    return found


def classifier_data(model: EquilibriumModel, data: Dataset, command: str) -> dict[str, Any]:
    """Another network that names pictures, in the place of the one that ships; measured here.

    Raises:
        UnsupportedModelError: the page cannot relax it, or its inputs are no square pictures.
    """
    image_side(data.features)
    grids = [layer["columns"] for layer in network_data(model)["layers"]]
    plain = placed(model, layer_orders(model, torch.from_numpy(data.train_x), grids))
    if plain["inputs"] != data.features or plain["outputs"] != data.classes:
        raise UnsupportedModelError(
            f"The network maps {plain['inputs']} numbers to {plain['outputs']}, and {data.name} "
            f"has {data.features} pixels and {data.classes} classes: show it with its own task."
        )
    x, y = torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)
    certificate = certify(model, x[:CERTIFIED], y[:CERTIFIED])
    with torch.no_grad():
        steps = model.equilibrium(x[:CERTIFIED]).steps
    return {
        **plain,
        "task": data.name,
        "labels": [str(k) for k in range(data.classes)],
        "samples": sample_data(data),
        "scaling": scaling_data(data),
        "record": {
            "command": command,
            "test_samples": len(x),
            "test_accuracy": accuracy(model, x, y),
            "chance": data.chance,
            "steps": steps,
            "tol": model.tol,
            "lipschitz": plain["lipschitz"],
            "certificate": {
                "ok": certificate.ok,
                "verdict": certificate.verdict,
                "samples": min(CERTIFIED, len(x)),
                "worst_cosine": certificate.min_cosine,
                "contraction": certificate.contraction,
            },
        },
    }


def page(networks: dict[str, Any]) -> str:
    """The HTML of the page; it needs no other file and no network."""
    folder = files("toreqprop.play")
    text = (folder / "page.html").read_text(encoding="utf-8")
    for part in PARTS:
        text = _put(text, part, (folder / part).read_text(encoding="utf-8"))
    content = {"version": toreqprop.__version__, **networks}
    # "</" would end the script that holds it.
    return _put(text, "networks.json", json.dumps(content).replace("</", "<\\/"))


def _put(text: str, name: str, content: str) -> str:
    mark = f"{{{{ {name} }}}}"
    if text.count(mark) != 1:
        raise AssertionError(f"page.html has no single place for {name}")
    return text.replace(mark, content)
