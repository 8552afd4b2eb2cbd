"""The trainings of the study as jobs: all images, certificates on the way, the test once."""

from __future__ import annotations

import copy
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

from toreqprop.bench.cifar.recipe import FRONT_MODULES, IMAGE, Method, Recipe, build, parted, twin
from toreqprop.bench.cifar.training import correct, pixels, train
from toreqprop.certificate import MAX_NORM_ERROR, MIN_COSINE, certify
from toreqprop.certificate.certifying import ORACLE_TOL
from toreqprop.certificate.comparison import compare
from toreqprop.certificate.estimate import in_double
from toreqprop.energies.convolution_norms import convolution_norm
from toreqprop.evidence import Measurement, Record
from toreqprop.gradients import ImplicitGradient
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
    kind = "hybrid " if recipe.front else ""
    return Training(
        "cifar10",
        f"{kind}{method}, {size}, {recipe.epochs} epochs, seed {seed}",
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
    recipe = recipe_of(settings)
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
        probe=probe if parted(model) else None,
        probed=(0, recipe.epochs // 2, recipe.epochs),
    )  # fmt: skip
    right = correct(model, test)
    return {
        "method": method,
        "seed": seed,
        "settings": asdict(recipe),
        "parameters": sum(p.numel() for p in model.parameters()),
        "shares": shares(recipe),
        "training_images": len(train_part.y),
        "test_images": len(test.y),
        "accuracy": float(right.mean()),
        "chance": float(np.bincount(test.y).max() / len(test.y)),
        "correct": np.packbits(right).tobytes().hex(),
        "epochs": done.epochs,
        "probes": done.probes,
        "timing": {"training": done.cpu_seconds},
    }


def recipe_of(settings: Sequence[tuple[str, Any]]) -> Recipe:
    """The recipe that a job's arguments name."""
    given: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in settings}
    return Recipe(**given)


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
    """The certificate of the layers that settle, in place and at their own β and tolerance, the
    norms of what couples them, and the time of a training step next to the twin's with the same
    weights; of a hybrid also what the front's gradient is worth.

    Batch norm works as it does in training; the model given stays as it is.
    """
    model = copy.deepcopy(model).train()
    front, block = parted(model) or (None, None)
    assert front is not None
    assert block is not None
    block.eval()
    with torch.no_grad():
        maps = front(x)
    certificate = certify(block, maps, y)
    shapes = [block.plan.image, *block.plan.maps]
    kernels = block.system_parameters()[::2]
    norms = [
        convolution_norm(kernel.detach(), *shape[1:])
        for kernel, shape in zip(kernels, shapes, strict=False)
    ]
    return {
        "certificate": certificate.as_dict(),
        "norms": norms,
        "front": front_certificates(front, block, x, y) if recipe.front else [],
        "timing": step_times(model, front, block, recipe, images),
    }


def front_certificates(
    front: nn.Module, block: HopfieldConvNet, x: Tensor, y: Tensor
) -> list[dict[str, Any]]:
    """Of each tensor of the front, the gradient that EP hands on to it against the exact one.

    The exact one is that of the whole network in double precision, with the implicit gradient of
    an equilibrium to `ORACLE_TOL` in the place of EP's.
    """
    exact = in_double(block, ORACLE_TOL, 10_000)
    exact.gradient = ImplicitGradient()
    found = []
    for first, second, given in (
        (copy.deepcopy(front), block, x),
        (copy.deepcopy(front).double(), exact, x.double()),
    ):
        value = F.cross_entropy(second(first(given)), y)
        names, tensors = zip(*first.named_parameters(), strict=True)
        found.append(torch.autograd.grad(value, tensors))
    both = zip(names, *found, strict=True)
    return [asdict(compare(n, a, b, MIN_COSINE, MAX_NORM_ERROR)) for n, a, b in both]


def step_times(
    model: nn.Module, front: nn.Module, block: HopfieldConvNet, recipe: Recipe, images: Images
) -> dict[str, float]:
    """Median milliseconds of processor time of forward and backward, by method and of the front
    alone, measured in turn on one batch; nothing is updated."""
    plain = twin(recipe, 0)
    with torch.no_grad():
        own = (*front.parameters(), *block.system_parameters(), *block.readout.parameters())
        for mine, theirs in zip(plain.parameters(), own, strict=True):
            mine.copy_(theirs)
    x = pixels(torch.from_numpy(images.x[: recipe.batch]))
    y = torch.from_numpy(images.y[: recipe.batch])
    found: dict[str, list[float]] = {"ep": [], "backprop": [], "front": []}
    for _ in range(TIMED + 1):
        for method, network in (("ep", model), ("backprop", plain), ("front", front)):
            if method == "front" and not recipe.front:
                continue
            started = time.process_time()
            output = network(x)
            value = output.sum() if method == "front" else F.cross_entropy(output, y)
            value.backward()
            found[method].append(1e3 * (time.process_time() - started))
    # The first of each allocates memory.
    return {
        method: statistics.median(times[1:]) if times else 0.0 for method, times in found.items()
    }


def shares(recipe: Recipe) -> dict[str, dict[str, int]]:
    """Parameters, and products of one pass upwards for one image: of the front, of the layers that
    settle in EP's network, and of the readout."""
    modules, before = list(twin(recipe, 0).eval()), FRONT_MODULES * len(recipe.front)
    parts = {"front": modules[:before], "settling": modules[before:-1], "readout": modules[-1:]}
    found: dict[str, dict[str, int]] = {"parameters": {}, "products": {}}
    x = torch.zeros(1, *IMAGE)
    with torch.no_grad():
        for name, part in parts.items():
            found["parameters"][name] = sum(p.numel() for m in part for p in m.parameters())
            found["products"][name] = 0
            for module in part:
                x = module(x)
                if isinstance(module, nn.Conv2d | nn.Linear):
                    found["products"][name] += module.weight[0].numel() * x.numel()
    return found
