"""The trainings of the study as jobs: all images, certificates on the way, the test once."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop.bench.cifar.recipe import Method, Recipe, build, twin
from toreqprop.bench.cifar.training import correct, pixels, train
from toreqprop.certificate import certify
from toreqprop.energies.convolution_norms import convolution_norm
from toreqprop.evidence import Measurement, Record
from toreqprop.models import HopfieldConvNet
from toreqprop.tasks.cifar10 import Images, fixed_split

CERTIFIED = 16
"""Training images of a certificate."""

TIMED = 5
"""Steps of each method, in turn, of which the median counts."""


@dataclass(frozen=True)
class Training(Measurement):
    """A measurement whose function also takes ``report`` for news and ``kept``, the file of its
    state after the last epoch: stopped at any time, the same command goes on from there."""

    folder: str = ""

    def perform(self, report: Callable[[Any], None]) -> Record:
        report("started")
        module, _, name = self.function.partition(":")
        kept = Path(self.folder) / f"{self.label}-{self.key}.pt"
        wall = time.perf_counter()
        function = getattr(import_module(module), name)
        found = function(**dict(self.arguments), report=report, kept=kept)
        kept.unlink(missing_ok=True)
        timing = {"seconds": time.perf_counter() - wall, "cpu_seconds": found["timing"]["training"]}
        return {"found": json.loads(json.dumps(found)), "timing": timing}


def training(
    method: Method, recipe: Recipe, seed: int, images: int | None, folder: Path
) -> Training:
    """One training as a job; ``images`` takes that many of each part, None all."""
    size = "all images" if images is None else f"{images} images"
    return Training(
        "cifar10",
        f"{method}, {size}, {recipe.epochs} epochs, seed {seed}",
        f"{__name__}:trained",
        (("method", method), ("seed", seed), ("images", images),
         ("settings", tuple(sorted(asdict(recipe).items())))),
        tasks=("cifar10",),
        weight=3.0 if method == "ep" else 1.0,
        folder=str(folder),
    )  # fmt: skip


def trained(
    method: Method,
    seed: int,
    images: int | None,
    settings: Sequence[tuple[str, Any]],
    report: Callable[[str], None],
    kept: Path,
) -> dict[str, Any]:
    """Train on the training images, then look at the test images once."""
    given: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in settings}
    recipe = Recipe(**given)
    train_part, test = parts(images)
    model = build(method, recipe, seed)
    sample = (
        pixels(torch.from_numpy(train_part.x[:CERTIFIED])),
        torch.from_numpy(train_part.y[:CERTIFIED]),
    )

    def probe(network: nn.Module) -> dict[str, Any]:
        return looked_into(network, recipe, *sample, train_part)

    done = train(
        model, train_part, recipe, seed, report=report, kept=kept,
        probe=probe if isinstance(model, HopfieldConvNet) else None,
        probed=(0, recipe.epochs // 2, recipe.epochs),
    )  # fmt: skip
    right = correct(model, test)
    return {
        "method": method,
        "seed": seed,
        "settings": asdict(recipe),
        "parameters": sum(p.numel() for p in model.parameters()),
        "training_images": len(train_part.y),
        "test_images": len(test.y),
        "accuracy": float(right.mean()),
        "chance": float(np.bincount(test.y).max() / len(test.y)),
        "correct": np.packbits(right).tobytes().hex(),
        "epochs": done.epochs,
        "probes": done.probes,
        "timing": {"training": done.cpu_seconds},
    }


def parts(images: int | None) -> tuple[Images, Images]:
    """Training and test images: all of them, those that had chosen the settings included, or as
    many of each."""
    first, held, test = fixed_split()
    whole = Images(np.concatenate([first.x, held.x]), np.concatenate([first.y, held.y]))
    if images is None:
        return whole, test
    return Images(whole.x[:images], whole.y[:images]), Images(test.x[:images], test.y[:images])


def looked_into(
    model: nn.Module, recipe: Recipe, x: Tensor, y: Tensor, images: Images
) -> dict[str, Any]:
    """The certificate at the model's own β and tolerance, the norms of what couples its layers,
    and the time of a training step next to the twin's with the same weights."""
    assert isinstance(model, HopfieldConvNet)
    model.eval()
    certificate = certify(model, x, y)
    shapes = [model.plan.image, *model.plan.maps]
    kernels = model.system_parameters()[::2]
    norms = [
        convolution_norm(kernel.detach(), *shape[1:])
        for kernel, shape in zip(kernels, shapes, strict=False)
    ]
    return {
        "certificate": certificate.as_dict(),
        "norms": norms,
        "timing": step_times(model, recipe, images),
    }


def step_times(model: HopfieldConvNet, recipe: Recipe, images: Images) -> dict[str, float]:
    """Median milliseconds of processor time of forward and backward, by method, measured in turn
    on one batch; nothing is updated."""
    plain = twin(recipe, 0)
    with torch.no_grad():
        own = (*model.system_parameters(), model.readout.weight, model.readout.bias)
        for mine, theirs in zip(plain.parameters(), own, strict=True):
            mine.copy_(theirs)
    x = pixels(torch.from_numpy(images.x[: recipe.batch]))
    y = torch.from_numpy(images.y[: recipe.batch])
    found: dict[str, list[float]] = {"ep": [], "backprop": []}
    for _ in range(TIMED + 1):
        for method, network in (("ep", model), ("backprop", plain)):
            started = time.process_time()
            F.cross_entropy(network(x), y).backward()
            found[method].append(1e3 * (time.process_time() - started))
    # The first of each allocates memory.
    return {method: statistics.median(times[1:]) for method, times in found.items()}
