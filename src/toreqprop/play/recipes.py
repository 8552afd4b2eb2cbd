"""The networks of the page for digits, trained by EP: names for them, and what is covered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop import checkpoint
from toreqprop.certificate import Certificate, certify
from toreqprop.models import LoopedMLP
from toreqprop.play.layout import grid_columns, layer_orders
from toreqprop.play.maze import build_maze
from toreqprop.tasks import Dataset, get
from toreqprop.training import TrainingConfig, accuracy, fit

FOLDER = Path(__file__).parent / "networks"
"""The networks that ship."""

SIDE, INK = 8, 16.0
"""Pixels along an edge of a digit, and the darkest of them."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Recipe:
    """A looped network and its training.

    ``strength`` multiplies the initial recurrent weights, so that their norm is at the bound from
    the start: the network then settles in tens of steps and there is something to watch. With
    ``rivals`` they are ``−strength·A·Aᵀ`` of a random A: neurons inhibit each other, and weights
    of twice the bound no longer settle. ``copies`` is how often each picture is seen, shifted or
    covered in another way.
    """

    hidden: int
    copies: int
    epochs: int
    radius: float = 0.95
    strength: float = 10.0
    rivals: bool = False
    learning_rate: float = 2e-3
    tol: float = 1e-5
    max_steps: int = 500

    def network(self, inputs: int, outputs: int) -> LoopedMLP:
        """Untrained, from torch's generator."""
        model = LoopedMLP(
            inputs, self.hidden, outputs, radius=self.radius, bound="exact",
            tol=self.tol, max_steps=self.max_steps,
        )  # fmt: skip
        with torch.no_grad():
            raw = model.recurrent.raw
            if self.rivals:
                random = torch.randn_like(raw) / self.hidden**0.5
                raw.copy_(-random @ random.mT)
            raw.mul_(self.strength)
        return model

    def training(self, seed: int) -> TrainingConfig:
        return TrainingConfig(
            epochs=self.epochs, learning_rate=self.learning_rate, schedule="cosine", seed=seed
        )


DIGITS = Recipe(hidden=144, copies=5, epochs=12, strength=0.75, rivals=True)
HIDDEN = Recipe(hidden=144, copies=6, epochs=15)


def shifted(pixels: np.ndarray, labels: np.ndarray, copies: int) -> tuple[np.ndarray, np.ndarray]:
    """The pictures, and each moved by one pixel to as many sides as there are more copies."""
    images = pixels.reshape(-1, SIDE, SIDE)
    moves = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)][:copies]
    found = []
    for down, right in moves:
        padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
        found.append(padded[:, 1 - down : 1 - down + SIDE, 1 - right : 1 - right + SIDE])
    return np.concatenate(found).reshape(-1, SIDE * SIDE), np.tile(labels, len(moves))


def covers(count: int, generator: torch.Generator) -> Tensor:
    """Random covers, (count, pixels): from one of four sides, or half of the pixels at random."""
    found = torch.zeros(count, SIDE, SIDE)
    kinds = torch.randint(0, 5, (count,), generator=generator).tolist()
    cuts = torch.randint(2, 6, (count,), generator=generator).tolist()
    for cover, kind, cut in zip(found, kinds, cuts, strict=True):
        if kind == 4:
            cover.copy_(torch.rand(SIDE, SIDE, generator=generator) < 0.5)
        else:
            turned = cover if kind % 2 == 0 else cover.mT
            turned[cut:] = 1 if kind < 2 else 0
            turned[:cut] = 0 if kind < 2 else 1
    return found.flatten(1)


def lower_half(count: int) -> Tensor:
    """The cover of the record: everything below the middle."""
    cover = torch.zeros(count, SIDE, SIDE)
    cover[:, SIDE // 2 :] = 1
    return cover.flatten(1)


def covered(pictures: Tensor, cover: Tensor) -> Tensor:
    """What the network sees: the pixels that are left, from −1 to 1, and which are hidden."""
    return torch.cat([pictures * (1 - cover), cover], 1)


def pictures(data: Dataset) -> tuple[Tensor, Tensor]:
    """Pixels of the training and the test part, from −1 (paper) to 1 (ink)."""
    parts = (data.train_x, data.test_x)
    train, test = (torch.from_numpy(data.standardiser.invert(x)) for x in parts)
    return 2 * train / INK - 1, 2 * test / INK - 1


def train_digits(data: Dataset, recipe: Recipe, seed: int) -> LoopedMLP:
    """A classifier of 8x8 digits, trained by EP."""
    raw, labels = shifted(data.standardiser.invert(data.train_x), data.train_y, recipe.copies)
    torch.manual_seed(seed)
    model = recipe.network(data.features, data.classes)
    x, y = torch.from_numpy(data.standardiser(raw)), torch.from_numpy(labels)
    fit(model, x, y, recipe.training(seed))
    return model


def train_hidden(data: Dataset, recipe: Recipe, seed: int) -> LoopedMLP:
    """A network that fills in the hidden pixels of a digit, trained by EP on the squared error."""
    train, _ = pictures(data)
    whole = train.repeat(recipe.copies, 1)
    cover = covers(len(whole), torch.Generator().manual_seed(seed))
    torch.manual_seed(seed)
    model = recipe.network(2 * data.features, data.features)
    fit(model, covered(whole, cover), whole, recipe.training(seed), loss=F.mse_loss)
    return model


def hidden_error(found: Tensor, truth: Tensor, cover: Tensor) -> float:
    """Root mean square error of the hidden pixels, as a share of the ink."""
    squares = ((found - truth) / 2).square() * cover
    return float((squares.sum() / cover.sum()).sqrt())


def digits_record(model: LoopedMLP, data: Dataset) -> dict[str, Any]:
    """What the page says of the classifier: test accuracy, steps, certificate."""
    x, y = torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)
    return {
        "test_samples": len(x),
        "test_accuracy": accuracy(model, x, y),
        "chance": data.chance,
        **_settling(model, x, certify(model, x[:CERTIFIED], y[:CERTIFIED])),
    }


def hidden_record(model: LoopedMLP, data: Dataset) -> dict[str, Any]:
    """What the page says of the other: the error of the lower half, and of two that do not settle.

    ``first_step`` reads the same network out after one step from rest; ``mean_picture`` is that of
    the training pictures.
    """
    train, test = pictures(data)
    cover = lower_half(len(test))
    x = covered(test, cover)
    certificate = certify(model, x[:CERTIFIED], test[:CERTIFIED], loss=F.mse_loss)
    with torch.no_grad():
        settled = model(x)
        first = model.readout_from((torch.tanh(model.input(x)),))
    return {
        "test_samples": len(x),
        "hidden_error": hidden_error(settled, test, cover),
        "hidden_error_first_step": hidden_error(first, test, cover),
        "hidden_error_mean_picture": hidden_error(train.mean(0), test, cover),
        **_settling(model, x, certificate),
    }


CERTIFIED = 64
"""Test samples in the batch whose gradient is certified."""


def _settling(model: LoopedMLP, x: Tensor, certificate: Certificate) -> dict[str, Any]:
    with torch.no_grad():
        found = model.equilibrium(x)
    return {
        "steps": found.steps,
        "tol": model.tol,
        "lipschitz": model.lipschitz(),
        "certificate": {
            "ok": certificate.ok,
            "verdict": certificate.verdict,
            "samples": CERTIFIED,
            "worst_cosine": min(t.cosine for t in certificate.tensors),
            "contraction": certificate.contraction,
        },
    }


def watched(name: str, data: Dataset) -> Tensor:
    """Training samples as either network takes them, to see which neurons go together."""
    if name == "digits":
        return torch.from_numpy(data.train_x)
    train, _ = pictures(data)
    return covered(train, lower_half(len(train)))


def build(folder: Path, seed: int = 42, on_part: Progress = lambda part: None) -> dict[str, Any]:
    """Train the networks of the page into ``folder``, checkpoints with records; returns those.

    Raises:
        CheckpointError: the folder cannot be written.
    """
    data = get("digits").load(seed, False)
    records: dict[str, Any] = {}
    parts: tuple[tuple[str, Recipe, Any, Any], ...] = (
        ("digits", DIGITS, train_digits, digits_record),
        ("hidden", HIDDEN, train_hidden, hidden_record),
    )
    for name, recipe, train, record in parts:
        on_part(name)
        model = train(data, recipe, seed)
        about = {
            "command": f"toreqprop play --train FOLDER --seed {seed}",
            "seed": seed,
            "recipe": asdict(recipe),
            **record(model, data),
            "orders": layer_orders(model, watched(name, data), [grid_columns(recipe.hidden)]),
        }
        checkpoint.save(folder / name, checkpoint.Checkpoint(model, about={"play": about}))
        records[name] = about
    on_part("maze")
    records["maze"] = build_maze(folder, seed)
    return records
