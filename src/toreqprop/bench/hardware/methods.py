"""Ways to a network on a faulty chip, each trained and tested on one chip."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop.bench.hardware.feed_forward import FeedForward
from toreqprop.energies.devices import Device
from toreqprop.gradients import CenteredEP
from toreqprop.hardware.budget import budget
from toreqprop.hardware.limits import at_rest, flat, gradient
from toreqprop.models import HopfieldMLP, OnChip
from toreqprop.tasks import get
from toreqprop.tasks.files import COLLECTIONS
from toreqprop.training import TrainingConfig, accuracy, fit

Method = Literal["in situ", "clean EP", "clean backprop", "aware backprop", "frozen"]
METHODS: tuple[Method, ...] = ("in situ", "clean EP", "clean backprop", "aware backprop", "frozen")

BUDGET_SAMPLES = 64
"""Training samples from which the budget chooses β, before training."""

HELD_OUT = 0.2
"""Part of the training data on which recipes are chosen."""

ANOTHER_DRAW = 5000
"""Added to a seed: the draw of images on which recipes are chosen, where there are more than those
a seed trains on. A thousand held out of five thousand told settings apart by no less than 0.7
points, and left fewer to learn from."""

WIDE = 20_000
"""Images of a wide held-out set: of some 4,500 their draw alone moves a difference by tenths."""


@dataclass(frozen=True)
class Recipe:
    """How a network learns a task. ``gain`` multiplies the outputs, neurons within ±1, in the
    cross-entropy; 0 is a squared error instead.

    What is written is kept in a ball by ``bound``, next to the accumulators: "tight" is its norm
    itself, so that layers talk as strongly as the radius says, "proven" a function of the weights
    alone, and several times too large for many of them. What is on the chip may lie outside of it.
    """

    task: str = "digits"
    hidden: int = 32
    epochs: int = 10
    batch_size: int = 32
    learning_rate: float = 0.01
    gain: float = 5.0
    spectral_norm: bool = True
    bound: Literal["proven", "tight"] = "proven"
    radius: float = 0.95
    feedback: float = 1.0

    @property
    def tuned(self) -> tuple[float, int, float]:
        """What a search may change: learning rate, epochs, feedback."""
        return self.learning_rate, self.epochs, self.feedback

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        if self.gain:
            return F.cross_entropy(self.gain * output, target)
        return F.mse_loss(output, F.one_hot(target, output.shape[1]).to(output))

    def network(self, seed: int) -> HopfieldMLP:
        """The untrained network, all of it neurons; the same weights for every method."""
        features, classes = final_split(self.task, seed).sizes
        return HopfieldMLP(
            [features, self.hidden, classes],
            output="free",
            spectral_norm=self.spectral_norm,
            bound=self.bound,
            radius=self.radius,
            feedback=self.feedback,
            start="random",
            generator=torch.Generator().manual_seed(seed),
        )

    def config(self, seed: int) -> TrainingConfig:
        return TrainingConfig(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            schedule="cosine",
            seed=seed,
        )


RECIPES = {
    "digits": Recipe(),
    "mnist": Recipe("mnist", hidden=64, epochs=10, batch_size=64, bound="tight"),
}
"""Where the search for a recipe begins, by task."""


@dataclass(frozen=True)
class Split:
    """What a method trains on and what it is measured on."""

    x: Tensor
    y: Tensor
    held_x: Tensor
    held_y: Tensor

    @property
    def sizes(self) -> tuple[int, int]:
        """Features and classes."""
        return self.x.shape[1], int(self.y.max()) + 1


@cache
def final_split(task: str, seed: int) -> Split:
    """Training against test data: for results."""
    data = get(task).load(seed, False)
    parts = (data.train_x, data.train_y, data.test_x, data.test_y)
    return Split(*(torch.from_numpy(part) for part in parts))


@cache
def validation_split(task: str, seed: int) -> Split:
    """Training against held-out training data: for choices.

    Of a collection from which a seed draws only a part, those of another draw that the seed did not
    train on; else `HELD_OUT` of the training data.
    """
    whole = final_split(task, seed)
    if task in COLLECTIONS:
        return Split(whole.x, whole.y, *_not_drawn(task, seed))
    order = torch.randperm(len(whole.x), generator=torch.Generator().manual_seed(seed))
    count = int(HELD_OUT * len(order))
    held, used = order[:count], order[count:]
    return Split(whole.x[used], whole.y[used], whole.x[held], whole.y[held])


@lru_cache(4)
def wide_split(task: str, seed: int) -> Split:
    """The same with `WIDE` images of all that a seed did not draw, where it draws a part."""
    if task not in COLLECTIONS:
        return validation_split(task, seed)
    whole = final_split(task, seed)
    x, y = _not_drawn(task, seed, full=True)
    few = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:WIDE]
    return Split(whole.x, whole.y, x[few], y[few])


def _not_drawn(task: str, seed: int, *, full: bool = False) -> tuple[Tensor, Tensor]:
    """Training images of another draw, or of all, that are not among this seed's, in its scale."""
    data, other = get(task).load(seed, False), get(task).load(seed + ANOTHER_DRAW, full)
    raw = other.standardiser.invert(other.train_x)
    own = {row.tobytes() for row in _pixels(data.standardiser.invert(data.train_x))}
    new = np.array([row.tobytes() not in own for row in _pixels(raw)])
    return torch.from_numpy(data.standardiser(raw[new])), torch.from_numpy(other.train_y[new])


def _pixels(raw: np.ndarray) -> np.ndarray:
    """Images as the bytes they were stored as: equal images, equal bytes."""
    return np.rint(255 * raw).astype(np.uint8)


Splitter = Callable[[str, int], Split]


def run(
    method: Method,
    device: Device,
    recipes: dict[str, Recipe],
    seed: int,
    split: Splitter = final_split,
    options: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Train by one method for one chip and measure it there.

    ``recipes`` has one for "EP" and one for "backprop"; ``options`` may fix ``beta`` or ask for
    phases swapped at random, ``swap``.
    """
    chosen = dict(options or {})
    recipe = recipes["backprop" if "backprop" in method else "EP"]
    data = split(recipe.task, seed)
    network = recipe.network(seed)
    row: dict[str, Any] = {"method": method, "seed": seed}
    model: nn.Module
    # Whose noise is not the training's own is drawn from the global generator.
    torch.manual_seed(seed)
    if method in ("in situ", "frozen"):
        model = placed(network, device, recipe, data, chosen)
        row["beta"] = getattr(model.gradient, "beta", None)
        if method == "frozen":
            for layer in network.layers[:-1]:
                layer.requires_grad_(False)
        _fit(model, data, recipe, seed)
    elif method == "clean EP":
        trained = _clean(recipe, seed, split, "EP")
        network.load_state_dict(trained)
        model = OnChip(device, network)
    elif method == "clean backprop":
        network.load_state_dict(_clean(recipe, seed, split, "backprop"))
        model = FeedForward(device, network)
    else:
        model = FeedForward(device, network, resampled=True)
        _fit(model, data, recipe, seed)
    torch.manual_seed(seed)  # of the noise of the test
    row["accuracy"] = 100 * accuracy(model, data.held_x, data.held_y)
    row["norm"] = coupling_norm(model if isinstance(model, OnChip) else OnChip(device, network))
    if method == "in situ":
        row["cosine"] = backprop_cosine(OnChip(device, network), recipe, data)
    return row


@torch.no_grad()
def coupling_norm(chip: OnChip) -> float:
    """``‖W‖₂`` of the last layer's weights as they are on the chip: how strongly layers talk."""
    layers = sum(p.dim() > 1 for p in chip.network.system_parameters())
    weights = [p for p in chip.system_parameters() if p.dim() > 1]
    return float(torch.linalg.matrix_norm(weights[layers - 1], 2))


def backprop_cosine(chip: OnChip, recipe: Recipe, data: Split) -> float:
    """Cosine of EP's gradient in the settled physical network with that of backpropagation through
    one pass upwards: with γ → 0 they are one."""
    few = slice(0, BUDGET_SAMPLES)
    x, y = data.x[few].double(), data.y[few]
    rest = at_rest(chip, CenteredEP())
    passing = FeedForward(replace(chip.device, states=None, read_noise=0.0), rest.network)
    mine = flat(gradient(rest, x, y, recipe.loss))
    found = torch.autograd.grad(recipe.loss(passing(x), y), list(rest.network.parameters()))
    theirs = torch.cat([g.flatten() for g in found])
    return float(mine @ theirs / (mine.norm() * theirs.norm()))


def placed(
    network: HopfieldMLP, device: Device, recipe: Recipe, data: Split, options: dict[str, Any]
) -> OnChip:
    """The network on the chip, with the nudge that its budget finds best, or a given one."""
    model = OnChip(device, network)
    swap = bool(options.get("swap", False))
    beta = options.get("beta")
    model.gradient = CenteredEP(swap=swap)
    if beta is None and device.moving:
        few = slice(0, BUDGET_SAMPLES)
        beta = budget(model, data.x[few], data.y[few], loss=recipe.loss).beta
    if beta is not None:
        model.gradient = replace(model.gradient, beta=beta)
    return model


def _fit(model: nn.Module, data: Split, recipe: Recipe, seed: int) -> None:
    fit(model, data.x, data.y, recipe.config(seed), loss=recipe.loss)


_trained: dict[Any, dict[str, Tensor]] = {}


def _clean(recipe: Recipe, seed: int, split: Splitter, kind: str) -> dict[str, Tensor]:
    """Weights trained without a fault; the same for every device."""
    key = (tuple(asdict(recipe).items()), seed, split.__name__, kind)
    if key not in _trained:
        network = recipe.network(seed)
        chip: nn.Module = OnChip(Device(), network)
        if kind == "backprop":
            chip = FeedForward(Device(), network)
        _fit(chip, split(recipe.task, seed), recipe, seed)
        _trained[key] = copy.deepcopy(network.state_dict())
    return _trained[key]
