"""Training in NumPy: shuffling, batches, AdamW and its schedule written out, for `fit` to match."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from toreqprop.gradients import CenteredEP
from toreqprop.kernels import reference
from toreqprop.models import LoopedMLP
from toreqprop.training import TrainingConfig, fit, predict
from toreqprop.verify.networks import Split

ROWS, HIDDEN, TEST = 170, 16, 120
CONFIG = TrainingConfig(
    epochs=2, batch_size=48, learning_rate=5e-3, weight_decay=0.05, schedule="cosine",
    optimizer="adamw",
)  # fmt: skip
"""A last batch that is smaller, a rate that falls, weights that decay: each shows if left out."""

SETTINGS = reference.Settings(beta=0.05, tol=1e-6, max_steps=200, radius=0.6)
MOMENTS, STABLE = (0.9, 0.999), 1e-8


@dataclass(frozen=True)
class Matched:
    """How far `fit` is from NumPy: the largest difference of a weight after any step, the steps
    taken and missing, and the test answers that differ."""

    weight: float
    steps: int
    missing: int
    answers: int


def match(data: Split, seed: int) -> Matched:
    """The same network trained twice from the same weights."""
    torch.manual_seed(seed)
    model = LoopedMLP(
        data.features, HIDDEN, data.classes, radius=SETTINGS.radius, bound="proven",
        tol=SETTINGS.tol, max_steps=SETTINGS.max_steps, gradient=CenteredEP(SETTINGS.beta),
        on_failure="ignore",
    ).double()  # fmt: skip
    x, y = data.x[:ROWS].double(), data.y[:ROWS]
    start = reference.Parameters(*(a.copy() for a in _parameters(model)))
    wanted = list(_train(start, x.numpy(), y.numpy(), seed))
    found: list[reference.Parameters] = []
    config = TrainingConfig(**{**CONFIG.__dict__, "seed": seed})
    fit(model, x, y, config, on_step=lambda net: found.append(_copied(net)))
    gaps = [
        float(np.abs(a - b).max())
        for one, two in zip(found, wanted, strict=False)
        for a, b in zip(one, two, strict=True)
    ]
    test = data.test_x[:TEST].double()
    mine = predict(model, test, batch_size=50).numpy()
    theirs = reference.predict(wanted[-1], test.numpy(), SETTINGS)
    return Matched(
        max(gaps), len(wanted), abs(len(found) - len(wanted)), int((mine != theirs).sum())
    )


def _parameters(model: LoopedMLP) -> tuple[np.ndarray, ...]:
    tensors = (
        model.input.weight, model.input.bias, model.recurrent.raw,
        model.readout.weight, model.readout.bias,
    )  # fmt: skip
    return tuple(t.detach().numpy() for t in tensors)


def _copied(model: torch.nn.Module) -> reference.Parameters:
    assert isinstance(model, LoopedMLP)
    return reference.Parameters(*(a.copy() for a in _parameters(model)))


def _train(
    params: reference.Parameters, x: np.ndarray, y: np.ndarray, seed: int
) -> Iterator[reference.Parameters]:
    """The parameters after every step of AdamW."""
    order = torch.Generator().manual_seed(seed)
    first = [np.zeros_like(p) for p in params]
    second = [np.zeros_like(p) for p in params]
    total = CONFIG.epochs * math.ceil(len(x) / CONFIG.batch_size)
    taken = 0
    for _ in range(CONFIG.epochs):
        rows = torch.randperm(len(x), generator=order).numpy()
        for at in range(0, len(x), CONFIG.batch_size):
            batch = rows[at : at + CONFIG.batch_size]
            gradients = reference.training_step(params, x[batch], y[batch], SETTINGS).gradients
            rate = CONFIG.learning_rate * 0.5 * (1 + math.cos(math.pi * taken / total))
            taken += 1
            new = []
            for k, (value, gradient) in enumerate(zip(params, gradients, strict=True)):
                first[k] = MOMENTS[0] * first[k] + (1 - MOMENTS[0]) * gradient
                second[k] = MOMENTS[1] * second[k] + (1 - MOMENTS[1]) * gradient**2
                mean = first[k] / (1 - MOMENTS[0] ** taken)
                size = np.sqrt(second[k] / (1 - MOMENTS[1] ** taken)) + STABLE
                new.append(value * (1 - rate * CONFIG.weight_decay) - rate * mean / size)
            params = reference.Parameters(*new)
            yield params
