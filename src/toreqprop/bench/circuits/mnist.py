"""A resistive network on all of MNIST; its recipe is chosen on held-out training images."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from toreqprop.models import ResistiveMLP
from toreqprop.tasks import get
from toreqprop.training import Epoch, History, TrainingConfig, accuracy, fit

HELD_OUT = 5_000
"""Training images that choose the recipe."""


@dataclass(frozen=True)
class Recipe:
    """One way to train; gains at None are the model's own."""

    hidden: tuple[int, ...] = (512,)
    epochs: int = 40
    batch_size: int = 250
    learning_rate: float = 0.03
    input_gain: float | None = None
    output_gain: float | None = None
    gain: float = 4.0

    def model(self, seed: int) -> ResistiveMLP:
        torch.manual_seed(seed)
        return ResistiveMLP(
            [784, *self.hidden, 10],
            gain=self.gain,
            input_gain=self.input_gain,
            output_gain=self.output_gain,
        )

    def config(self, seed: int) -> TrainingConfig:
        return TrainingConfig(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            schedule="cosine",
            seed=seed,
        )


@dataclass(frozen=True)
class Images:
    """Training and held-out images, and the test set, which `search` never sees."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor


def images(seed: int = 0) -> Images:
    """All of MNIST, standardised by one mean and deviation of the training images."""
    data = get("mnist").load(seed, full=True)
    parts = (data.train_x, data.train_y, data.test_x, data.test_y)
    return Images(*(torch.from_numpy(part) for part in parts))


def search(
    data: Images, recipes: list[Recipe], count: int, on_run: Callable[[dict[str, Any]], None]
) -> None:
    """Train each recipe on ``count`` images and measure it on the held-out ones."""
    order = torch.randperm(len(data.x), generator=torch.Generator().manual_seed(0))
    held, used = order[:HELD_OUT], order[HELD_OUT : HELD_OUT + count]
    for recipe in recipes:
        model, started = recipe.model(0), time.perf_counter()
        history = fit(model, data.x[used], data.y[used], recipe.config(0))
        on_run(
            {
                "recipe": asdict(recipe),
                "training_images": len(used),
                "held_out_accuracy": accuracy(model, data.x[held], data.y[held]),
                "seconds": time.perf_counter() - started,
                **_figures(history),
            }
        )


def train(
    data: Images, recipe: Recipe, seed: int, on_epoch: Callable[[Epoch], None]
) -> tuple[ResistiveMLP, dict[str, Any]]:
    """All training images, a number of epochs fixed beforehand, the test set once at the end."""
    model, started = recipe.model(seed), time.perf_counter()
    history = fit(model, data.x, data.y, recipe.config(seed), on_epoch=on_epoch)
    seconds = time.perf_counter() - started
    return model, {
        "recipe": asdict(recipe),
        "seed": seed,
        "training_images": len(data.x),
        "training_seconds": seconds,
        "test_accuracy": accuracy(model, data.test_x, data.test_y),
        "test_images": len(data.test_x),
        **_figures(history),
        "epochs": history.as_rows(),
    }


def _figures(history: History) -> dict[str, Any]:
    last = history.epochs[-1]
    return {
        "final_loss": last.loss,
        "free_steps": last.free_steps,
        "nudged_steps": last.nudged_steps,
        "relaxations": sum(e.relaxations or 0 for e in history.epochs),
        "unconverged": history.unconverged,
    }
