"""Track 34: the training behind the study of CIFAR-10, in small."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch

from toreqprop.bench.cifar import training
from toreqprop.bench.cifar.recipe import Recipe, settling_layers
from toreqprop.bench.cifar.training import correct, train
from toreqprop.certificate import Certificate
from toreqprop.energies.convolution_norms import convolution_norm
from toreqprop.models import HopfieldConvNet
from toreqprop.tasks.cifar10 import Images
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Accuracy, Measurements, pooled
from toreqprop.verify.mutations import plantable
from toreqprop.verify.photographs import (
    SMALL,
    certificates_table,
    certified,
    photographs,
    scored,
)
from toreqprop.verify.spoiled import Spoiled
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import Bound, above_chance, at_least, at_most

CHANNELS = (8, 16, 32)
"""Three layers, as in the study, a quarter as wide."""

LIMIT = "radius ignored"


class _StoppedError(Exception):
    """What ends a training halfway."""


@plantable
def run(context: Context) -> Measurements:
    count, tested, epochs = context.level.pick((512, 1500, 3), (3000, 5000, 5), (5000, 10_000, 6))
    recipe = SMALL.but(channels=CHANNELS, epochs=epochs, batch=16)
    scores: list[Accuracy] = []
    certificates: list[tuple[int, str, Certificate]] = []
    apart, reach, unsettled = 0.0, 0.0, 0
    images, test = photographs(context, count, tested)
    for seed in context.seeds[:1] if context.level.name == "quick" else context.seeds:
        context.report(f"in one go, seed {seed}")
        model = _network(context, recipe, seed)
        certificates.append((seed, "before", certified(model, images)))
        done = train(model, images, recipe, seed)
        certificates.append((seed, "after", certified(model, images)))
        scores.append(scored(correct(model, test), test))
        reach = max(reach, _reach(model, recipe))
        unsettled += sum(sum(epoch["failures"].values()) for epoch in done.epochs)
        context.report(f"with an interruption, seed {seed}")
        other = _interrupted(context, recipe, images, seed)
        both = zip(model.parameters(), other.parameters(), strict=True)
        apart = max(apart, *(float((a - b).detach().abs().max()) for a, b in both))
    tensors = [t for _, _, c in certificates for t in c.tensors]
    return Measurements(
        {
            "accuracy": pooled(scores),
            "apart": apart,
            "reach": reach,
            "unsettled": unsettled,
            "min_cosine": min(t.cosine for t in tensors),
            "norm_error": max(abs(t.norm_ratio - 1) for t in tensors),
            "contraction": max(c.contraction for _, _, c in certificates),
            "images": count,
        },
        tables=(certificates_table(certificates),),
    )


def _network(context: Context, recipe: Recipe, seed: int) -> HopfieldConvNet:
    if context.sabotaged(LIMIT):
        recipe = recipe.but(radius=10.0)
    model = settling_layers(recipe, seed)
    if context.sabotaged(LIMIT):
        with torch.no_grad():
            for kernel in [p for p in model.layers.parameters() if p.dim() == 4][1:]:
                kernel.mul_(6.0)
    if context.sabotaged("the first kernel x0.7"):
        model.gradient = Spoiled(lambda g: 0.7 * g, 1, model.gradient)
    return model


def _interrupted(context: Context, recipe: Recipe, images: Images, seed: int) -> HopfieldConvNet:
    """Stopped after the second epoch, and gone on with by a new network from the file."""

    def stop(news: str) -> None:
        if news.startswith("epoch 2 "):
            raise _StoppedError

    with TemporaryDirectory() as folder, patch.object(training, "_restore", _restoring(context)):
        kept = Path(folder) / "state.pt"
        with suppress(_StoppedError):
            train(_network(context, recipe, seed), images, recipe, seed, report=stop, kept=kept)
        model = _network(context, recipe, seed)
        train(model, images, recipe, seed, kept=kept)
    return model


def _restoring(context: Context) -> Any:
    """How a state is put back, or without the order of the images where that is the sabotage."""
    right = training._restore
    if not context.sabotaged("order lost"):
        return right

    def forgetful(path: Any, model: Any, optimizer: Any, order: torch.Generator) -> Any:
        return right(path, model, optimizer, torch.Generator())

    return forgetful


def _reach(model: HopfieldConvNet, recipe: Recipe) -> float:
    """The largest norm of a kernel between layers over what the recipe's radius allows."""
    allowed = recipe.radius / (2**0.5 * recipe.feedback**0.5)  # of two couplings in a row
    kernels = model.system_parameters()[2::2]
    return max(
        convolution_norm(kernel.detach(), *shape[1:]) / allowed
        for kernel, shape in zip(kernels, model.plan.maps, strict=False)
    )


def bounds(level: Level) -> tuple[Bound, ...]:
    return (
        above_chance("accuracy", "accuracy, %"),
        at_least("accuracy", level.pick(22.0, 35.0, 40.0), "accuracy, %"),
        at_most("apart", 0.0, "largest difference of a weight after an interruption"),
        # The norm is proven to a percent, and kept by an estimate that is a little below it.
        at_most("reach", 1.03, "largest norm of a kernel over what the radius allows"),
        at_least("min_cosine", 0.99, "smallest cosine with the exact gradient"),
        at_most("norm_error", 0.05, "largest error of a gradient's norm"),
    )


TRACK = Track(
    number=34,
    title="The Study of CIFAR-10",
    claim="The training by which EP learns CIFAR-10 keeps the couplings within their radius and "
    "the gradients certified, goes on after an interruption as if there had been none, and "
    "already learns from a few hundred photographs.",
    experiment="The study's own code and recipe with a quarter of the channels on some CIFAR-10 "
    "images (512 at Smoke Test): once in one go, once stopped after two epochs and gone on with; "
    "certificates before and after, norms of the kernels, test accuracy. What all 50,000 images "
    "give is measured by `toreqprop cifar`.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("order lost", "the order of the images is not put back after an interruption"),
        Sabotage("the first kernel x0.7", "one tensor's gradient is too small"),
        Sabotage(LIMIT, "kernels between layers are as strong as they like"),
        Sabotage("shuffled labels", "the network trains on labels that mean nothing"),
    ),
    statements=(
        "From {images} images: {accuracy}.",
        "After an interruption weights differed by {apart:g}; norms reached {reach:.2f} of what is "
        "allowed; {unsettled} relaxations did not settle.",
        "Smallest cosine with the exact gradient {min_cosine:.4f}, largest error of a norm "
        "{norm_error:.2%}, contraction at most {contraction:.2f}.",
    ),
    cost=20,
)
