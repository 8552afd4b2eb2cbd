"""A network as plain data that the page reads: effective weights in base64, samples, records."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.energies import Tanh
from toreqprop.errors import UnsupportedModelError
from toreqprop.models import EquilibriumModel, HopfieldMLP, LoopedMLP
from toreqprop.play.layout import grid_columns
from toreqprop.tasks import Dataset

LARGEST = 1_500_000
"""Numbers of a network that a page still carries easily."""

SAMPLES = 4
"""Test samples of each class."""


def encoded(array: Tensor | np.ndarray, dtype: Any = np.float32) -> str:
    """The numbers, row by row, little-endian, in base64."""
    values = array.detach().cpu().numpy() if isinstance(array, Tensor) else array
    plain = np.ascontiguousarray(values, np.dtype(dtype).newbyteorder("<"))
    return base64.b64encode(plain.tobytes()).decode("ascii")


@torch.no_grad()
def network_data(model: EquilibriumModel) -> dict[str, Any]:
    """``s = tanh(W_in x + b + W s)`` of all free neurons in one vector, and its readout.

    A stack of layers is such a network too: W then has blocks beside its diagonal.

    Raises:
        UnsupportedModelError: the model is none that the page can relax, and which are.
    """
    checks.instance("model", model, EquilibriumModel, "load one that settles")
    if isinstance(model, LoopedMLP) and model.symmetric:
        data = _looped(model)
    elif (
        isinstance(model, HopfieldMLP)
        and model.readout is not None
        and model.activation == Tanh()
        and model.feedback == 1
    ):
        data = _layered(model)
    else:
        raise UnsupportedModelError(
            f"The page relaxes symmetric tanh networks, and {type(model).__name__} here is none: "
            "use LoopedMLP(symmetric=True), or HopfieldMLP with a readout and feedback=1 "
            "(toreqprop train --feedback 1)."
        )
    weights = data["weights"]
    if sum(w.numel() for w in weights.values()) > LARGEST:
        raise UnsupportedModelError(
            f"The network has more than {LARGEST:,} numbers, too many for a page: train one with "
            "fewer neurons."
        )
    data["weights"] = {name: encoded(w) for name, w in weights.items()}
    data["radius"], data["lipschitz"] = model.radius, model.lipschitz()  # type: ignore[attr-defined]
    return data


def _looped(model: LoopedMLP) -> dict[str, Any]:
    weight, bias, recurrent = model.system_parameters()
    return {
        "neurons": model.hidden_features,
        "inputs": model.in_features,
        "outputs": model.out_features,
        "looped": True,
        "layers": [_layer(model.hidden_features)],
        "weights": {
            "input": weight,
            "bias": bias,
            "recurrent": 0.5 * (recurrent + recurrent.mT),
            "readout": model.gain * model.readout.weight,
            "offset": model.gain * model.readout.bias,
        },
    }


def _layered(model: HopfieldMLP) -> dict[str, Any]:
    assert model.readout is not None
    sizes, parts = model.sizes[1:-1], model.system_parameters()
    total = sum(sizes)
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    first = parts[0]
    weight = first.new_zeros(total, model.sizes[0])
    weight[: sizes[0]] = first
    recurrent = first.new_zeros(total, total)
    for layer in range(1, len(sizes)):
        block = parts[2 * layer]
        rows = slice(starts[layer], starts[layer] + sizes[layer])
        columns = slice(starts[layer - 1], starts[layer])
        recurrent[rows, columns], recurrent[columns, rows] = block, block.mT
    readout = first.new_zeros(model.sizes[-1], total)
    reads = model.linear_readout()
    assert reads is not None
    readout[:, starts[-1] :] = reads.gain * model.readout.weight
    return {
        "neurons": total,
        "inputs": model.sizes[0],
        "outputs": model.sizes[-1],
        "looped": False,
        "layers": [_layer(size) for size in sizes],
        "weights": {
            "input": weight,
            "bias": torch.cat(parts[1::2]),
            "recurrent": recurrent,
            "readout": readout,
            "offset": reads.lift * model.readout.bias,
        },
    }


def _layer(count: int) -> dict[str, int]:
    return {"count": count, "columns": grid_columns(count)}


def image_side(features: int) -> int:
    """Pixels along an edge of square pictures.

    Raises:
        UnsupportedModelError: so many features are no square.
    """
    side = round(features**0.5)
    if side * side != features:
        raise UnsupportedModelError(
            f"The page shows square pictures, and {features} features are none: show a network "
            "trained on digits, mnist or fashion."
        )
    return side


def sample_data(data: Dataset, each: int = SAMPLES) -> dict[str, Any]:
    """Test pictures, ``each`` of every class, as bytes from 0 to ``peak``, and their labels."""
    chosen = [i for k in range(each) for i in _nth(data, k)]
    peak = darkest(data)
    # Digits of sixteen shades keep them; others are given 255.
    shades = peak if peak <= 255 and peak == round(peak) else 255.0
    raw = data.standardiser.invert(data.test_x[chosen])
    pixels = np.clip(np.rint(raw * (shades / peak)), 0, shades)
    return {
        "peak": shades,
        "side": image_side(data.features),
        "labels": data.test_y[chosen].tolist(),
        "pixels": encoded(pixels, np.uint8),
    }


def darkest(data: Dataset) -> float:
    """The largest pixel of the training pictures, in their own units."""
    return round(float(data.standardiser.invert(data.train_x).max()), 3)


def _nth(data: Dataset, number: int) -> list[int]:
    """The test sample of that number within each class."""
    found = []
    for label in range(data.classes):
        rows = np.flatnonzero(data.test_y == label)
        found.append(int(rows[number % len(rows)]))
    return found


def scaling_data(data: Dataset) -> dict[str, str]:
    """What maps a pixel from 0 to 1 to what the network sees: ``pixel·gain − shift``."""
    peak = darkest(data)
    scale = np.broadcast_to(data.scale, data.features)
    mean = np.broadcast_to(data.mean, data.features)
    return {"gain": encoded(peak / scale), "shift": encoded(mean / scale)}
