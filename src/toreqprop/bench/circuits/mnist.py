"""A resistive network on all of MNIST; its recipe is chosen on held-out training images."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.models import ResistiveMLP
from toreqprop.tasks import get
from toreqprop.training import RelaxationMonitor, accuracy, minibatches

HELD_OUT = 5_000
"""Training images that choose the recipe."""


@dataclass(frozen=True)
class Recipe:
    """One way to train; gains at None are the model's own.

    ``moves`` is by how many pixels each training image is moved at most, anew in every epoch.
    """

    hidden: tuple[int, ...] = (512,)
    epochs: int = 30
    batch_size: int = 250
    learning_rate: float = 0.1
    input_gain: float | None = 14.0
    output_gain: float | None = None
    gain: float = 4.0
    moves: int = 1

    def model(self) -> ResistiveMLP:
        return ResistiveMLP(
            [784, *self.hidden, 10],
            gain=self.gain,
            input_gain=self.input_gain,
            output_gain=self.output_gain,
        )


@dataclass(frozen=True)
class Images:
    """Training and held-out images, and the test set, which `search` never sees."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor


def images(seed: int = 0) -> Images:
    """All of MNIST, in units of one deviation of the training images, the background at zero."""
    data = get("mnist").load(seed, True)
    dark = data.train_x.min()
    parts = (data.train_x - dark, data.train_y, data.test_x - dark, data.test_y)
    return Images(*(torch.from_numpy(part) for part in parts))


def search(
    data: Images, recipes: list[Recipe], count: int, on_run: Callable[[dict[str, Any]], None]
) -> None:
    """Train each recipe on ``count`` images and measure it on the held-out ones."""
    order = torch.randperm(len(data.x), generator=torch.Generator().manual_seed(0))
    held, used = order[:HELD_OUT], order[HELD_OUT : HELD_OUT + count]
    for recipe in recipes:
        model, run = fit(data.x[used], data.y[used], recipe, seed=0)
        figures = {"held_out_accuracy": accuracy(model, data.x[held], data.y[held])}
        on_run({"recipe": asdict(recipe), "training_images": len(used), **figures, **run})


def train(
    data: Images, recipe: Recipe, seed: int, on_epoch: Callable[[dict[str, Any]], None]
) -> tuple[ResistiveMLP, dict[str, Any]]:
    """All training images, a number of epochs fixed beforehand, the test set once at the end."""
    model, run = fit(data.x, data.y, recipe, seed, on_epoch)
    return model, {
        "recipe": asdict(recipe),
        "seed": seed,
        "training_images": len(data.x),
        "test_images": len(data.test_x),
        "test_accuracy": accuracy(model, data.test_x, data.test_y),
        **run,
    }


def fit(
    x: Tensor,
    y: Tensor,
    recipe: Recipe,
    seed: int,
    on_epoch: Callable[[dict[str, Any]], None] = lambda row: None,
) -> tuple[ResistiveMLP, dict[str, Any]]:
    """Adam with a cosine schedule; every image moved by up to ``recipe.moves`` pixels anew."""
    torch.manual_seed(seed)
    model = recipe.model()
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.learning_rate)
    steps = recipe.epochs * -(-len(x) // recipe.batch_size)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    monitor, rows, started = RelaxationMonitor(), [], (time.perf_counter(), time.process_time())
    key = model.register_relaxation_hook(monitor)
    for epoch in range(1, recipe.epochs + 1):
        total = 0.0
        for batch in minibatches(len(x), recipe.batch_size, generator):
            optimizer.zero_grad()
            given = moved(x[batch], recipe.moves, generator)
            loss = F.cross_entropy(model(given), y[batch])
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += float(loss.detach()) * len(batch)
        seconds = time.perf_counter() - started[0]
        rows.append({"epoch": epoch, "loss": total / len(x), "seconds": round(seconds, 1)})
        on_epoch(rows[-1])
    model.remove_relaxation_hook(key)
    return model, {
        "seconds": time.perf_counter() - started[0],
        "cpu_seconds": time.process_time() - started[1],
        "free_steps": monitor.mean_steps("free"),
        "nudged_steps": monitor.mean_steps("nudged"),
        "relaxations": model.relaxations,
        "unconverged": monitor.unconverged,
        "epochs": rows,
    }


def moved(x: Tensor, pixels: int, generator: torch.Generator) -> Tensor:
    """Each image moved by up to so many pixels in both directions, background where it was."""
    if pixels == 0:
        return x
    size = int(x.shape[1] ** 0.5)
    padded = F.pad(x.reshape(-1, size, size), [pixels] * 4)
    down, right = torch.randint(0, 2 * pixels + 1, (2, len(x), 1, 1), generator=generator)
    rows, columns = torch.arange(size)[None, :, None], torch.arange(size)[None, None, :]
    return padded[torch.arange(len(x))[:, None, None], down + rows, right + columns].flatten(1)
