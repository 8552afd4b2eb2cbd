"""Resistive networks on handwritten digits: as drawn, deployed on another circuit, in place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from toreqprop.energies.devices import Device
from toreqprop.models import ResistiveMLP
from toreqprop.solvers import Solver
from toreqprop.tasks import get
from toreqprop.training import TrainingConfig, accuracy, fit

MISMATCH = Device(spread=0.4, diode_spread=0.7, up_down=0.2, neuron_offset=0.05)
"""Conductances spread by 40 %, diodes by 70 %, returned current by 20 %, offsets of 50 mV."""


@dataclass(frozen=True)
class Recipe:
    """How a network learns digits; its choice never saw a test image."""

    hidden: int = 64
    epochs: int = 20
    batch_size: int = 50
    learning_rate: float = 0.1

    def config(self, seed: int) -> TrainingConfig:
        return TrainingConfig(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            schedule="cosine",
            seed=seed,
        )


Data = tuple[Tensor, Tensor, Tensor, Tensor]


def digits(seed: int) -> Data:
    """Training and test images and labels, in double precision as SPICE computes."""
    data = get("digits").load(seed, False)
    x, test_x = (torch.from_numpy(part).double() for part in (data.train_x, data.test_x))
    return x, torch.from_numpy(data.train_y), test_x, torch.from_numpy(data.test_y)


def build(recipe: Recipe, seed: int, device: Device | None = None) -> ResistiveMLP:
    """The untrained network; the same conductances for every circuit of one seed."""
    torch.manual_seed(seed)
    return ResistiveMLP([64, recipe.hidden, 10], device=device).double()


def learn(model: ResistiveMLP, data: Data, recipe: Recipe, seed: int) -> ResistiveMLP:
    """Train on this very circuit's voltages."""
    fit(model, data[0], data[1], recipe.config(seed))
    return model


def held_out(recipe: Recipe, seed: int) -> dict[str, float]:
    """Accuracy on a fifth of the training rows, trained on the others."""
    x, y, _, _ = digits(seed)
    part = len(x) // 5
    model = learn(build(recipe, seed), (x[part:], y[part:], x[:part], y[:part]), recipe, seed)
    return {"held_out_accuracy": accuracy(model, x[:part], y[:part])}


def as_drawn(recipe: Recipe, seed: int, simulator: Solver | None = None) -> dict[str, Any]:
    """Test accuracy in PyTorch and, with the same weights, in a circuit simulator."""
    data = digits(seed)
    model = learn(build(recipe, seed), data, recipe, seed)
    row: dict[str, Any] = {"seed": seed, "pytorch": accuracy(model, *data[2:])}
    if simulator is not None:
        with torch.no_grad():
            expected = model(data[2])
            model.solver = simulator
            found = model(data[2])
        row["ngspice"] = float((found.argmax(1) == data[3]).double().mean())
        row["largest_difference_volts"] = float((found - expected).abs().max()) / model.output_gain
    return row


def mismatched(recipe: Recipe, seed: int, spread: float = 1.0) -> dict[str, Any]:
    """Test accuracies on one mismatched circuit: deployed, in place, in place with a layer frozen.

    ``spread`` multiplies every fault of `MISMATCH`.
    """
    data, faults = digits(seed), scaled(spread, seed)
    ideal = learn(build(recipe, seed), data, recipe, seed)
    deployed = build(recipe, seed, faults)
    deployed.load_state_dict(ideal.state_dict())
    in_place = learn(build(recipe, seed, faults), data, recipe, seed)
    frozen = build(recipe, seed, faults)
    frozen.crossbars[0].requires_grad_(False)
    learn(frozen, data, recipe, seed)
    models = {"ideal": ideal, "deployed": deployed, "in_place": in_place, "frozen": frozen}
    row = {name: accuracy(model, *data[2:]) for name, model in models.items()}
    return {"seed": seed, "spread": spread, **row}


def scaled(spread: float, seed: int) -> Device:
    """`MISMATCH`, every fault times ``spread``, for one circuit."""
    kinds = {name: size * spread for name, size in MISMATCH.faults()}
    return replace(MISMATCH, **kinds, seed=seed)
