"""Half-hidden digits: one network that settles around what it sees, beside feed-forward twins.

All of them learn with half of the pixels hidden and are tested with a quarter, a half and three
quarters of them hidden. Settings were chosen on validation images; test images are used once.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop.certificate import certify
from toreqprop.errors import InvalidInputError
from toreqprop.evidence import Measurement
from toreqprop.gradients import CenteredEP, GradientEstimator, ImplicitGradient
from toreqprop.models import CompletionNetwork
from toreqprop.private_generator import noise
from toreqprop.solvers import Anderson, GaussSeidel
from toreqprop.tasks import get
from toreqprop.training import TrainingConfig, fit

EP, IMPLICIT = "ep", "implicit"
TWINS = {"twin": 1, "deep twin": 2}
"""Hidden layers of the feed-forward twins."""
METHODS = (EP, IMPLICIT, *TWINS)
KINDS = ("random", "block")
SHARES = (0.25, 0.5, 0.75)
TRAINED = 0.5
INK = {"digits": 16.0, "mnist": 1.0}
TEST_MASKS = 2024
CERTIFIED, IMPLICIT_SEEDS = 64, 2


@dataclass(frozen=True)
class Setup:
    """A network and its training.

    Each image is seen under ``copies`` masks; in training up to ``dropped`` of what is seen is
    kept from the drivers, or from a twin, as `dropping` says. ``mix`` weighs the cross-entropy of
    the class against the squared error of the picture, ``gain`` multiplies the ten features that
    stand for it.
    """

    task: str = "digits"
    hidden: int = 80
    drivers: int = 80
    feedback: float = 0.1
    scale: float = 1.7
    drive_scale: float = 4.0
    radius: float | None = 0.99
    copies: int = 40
    dropped: float = 0.6
    epochs: int = 6
    batch_size: int = 256
    rate: float = 1.6e-2
    weight_decay: float = 0.3
    mix: float = 0.1
    gain: float = 20.0
    tol: float = 1e-3
    beta: float = 1e-3
    max_steps: int = 500

    def loss(self, classes: int) -> CompletionLoss:
        return CompletionLoss(classes, self.mix, self.gain)


SETUP = Setup()
SETUPS = {
    EP: SETUP,
    IMPLICIT: SETUP,
    "twin": replace(SETUP, scale=4.0, dropped=0.5),
    "deep twin": replace(SETUP, scale=4.0, dropped=0.7, weight_decay=0.15),
}
"""What was best for each method on validation images, as `judged`."""


@dataclass(frozen=True)
class Pictures:
    """Pixels (n, pixels) as shares of the ink, less the training images' mean, and classes."""

    train: Tensor
    train_y: Tensor
    test: Tensor
    test_y: Tensor
    classes: int
    mean: Tensor


def pictures(task: str, seed: int, *, validation: bool) -> Pictures:
    """The images of a seed; with ``validation`` a fifth of the training images stands for the
    test's."""
    data = get(task).load(seed, False)
    if validation:
        data = data.validation(0.2, seed)
    raw = [data.standardiser.invert(x) / INK[task] for x in (data.train_x, data.test_x)]
    train, test = map(torch.from_numpy, raw)
    mean = train.mean(0)
    labels = torch.from_numpy(data.train_y), torch.from_numpy(data.test_y)
    return Pictures(train - mean, labels[0], test - mean, labels[1], data.classes, mean)


def masks(kind: str, share: float, count: int, pixels: int, generator: torch.Generator) -> Tensor:
    """(count, pixels), 1 where a pixel is seen: ``share`` of them are hidden, at random places, or
    as a block, which is the lowest rows or the leftmost columns."""
    if kind == "random":
        order = torch.rand(count, pixels, generator=generator).argsort(1).argsort(1)
        return (order >= round(share * pixels)).float()
    side = math.isqrt(pixels)
    seen = torch.ones(count, side, side)
    seen[:, side - round(share * side) :] = 0
    left = torch.rand(count, generator=generator) < 0.5
    seen[left] = seen[left].flip(1).mT
    return seen.flatten(1)


def half_hidden(count: int, pixels: int, generator: torch.Generator) -> Tensor:
    """The masks of training: of either kind, and `TRAINED` of the pixels hidden."""
    random, block = (masks(kind, TRAINED, count, pixels, generator) for kind in KINDS)
    return torch.where(torch.rand(count, 1, generator=generator) < 0.5, random, block)


def given(picture: Tensor, seen: Tensor, classes: int) -> Tensor:
    """What a network sees: the seen pixels and no class, and which features these are."""
    unknown = picture.new_zeros(len(picture), classes)
    return torch.cat([picture * seen, unknown, seen, unknown], 1)


def whole(picture: Tensor, labels: Tensor, classes: int) -> Tensor:
    """The picture and its class as one row: what a network should make of the above."""
    return torch.cat([picture, F.one_hot(labels, classes).to(picture.dtype)], 1)


@dataclass(frozen=True)
class CompletionLoss:
    """``Σ(pixels' errors)² + mix·cross-entropy(gain·class)``, the mean over samples; what is
    seen has no error."""

    classes: int
    mix: float
    gain: float

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        at = output.shape[1] - self.classes
        squares = (output[:, :at] - target[:, :at]).square().sum(1).mean()
        return squares + self.mix * F.cross_entropy(self.gain * output[:, at:], target[:, at:])


class Twin(nn.Module):
    """One pass from the seen pixels and the mask to the whole: layers of tanh, trained by
    backpropagation."""

    def __init__(self, features: int, classes: int, hidden: Sequence[int], scale: float) -> None:
        super().__init__()
        self.features, self.pixels, self.scale = features, features - classes, scale
        sizes = (2 * self.pixels, *hidden)
        parts: list[nn.Module] = []
        for below, above in itertools.pairwise(sizes):
            parts += [nn.Linear(below, above), nn.Tanh()]
        self.layers = nn.Sequential(*parts, nn.Linear(sizes[-1], features))

    def forward(self, x: Tensor) -> Tensor:
        seen, mask, *heard = x.split(self.features, 1)
        own = [self.scale * seen, mask]
        for kept in heard:
            own = [part * kept for part in own]
        made = self.layers(torch.cat([part[:, : self.pixels] for part in own], 1))
        return torch.lerp(made / self.scale, seen, mask)


def build(setup: Setup, method: str, pixels: int, classes: int) -> nn.Module:
    """Untrained, from torch's generator; a twin has as many parameters or a few more."""
    features = pixels + classes
    if method in TWINS:
        least = parameters(network(setup, CenteredEP(), features))
        sizes = ([width] * TWINS[method] for width in itertools.count(1))
        twins = (Twin(features, classes, hidden, setup.scale) for hidden in sizes)
        return next(twin for twin in twins if parameters(twin) >= least)
    estimator = CenteredEP(setup.beta) if method == EP else ImplicitGradient()
    return network(setup, estimator, features)


def network(setup: Setup, estimator: GradientEstimator, features: int) -> CompletionNetwork:
    return CompletionNetwork(
        features,
        setup.hidden,
        setup.drivers,
        scale=setup.scale,
        drive_scale=setup.drive_scale,
        feedback=setup.feedback,
        spectral_norm=setup.radius is not None,
        radius=setup.radius or 1.0,
        gradient=estimator,
        solver=Anderson(2, GaussSeidel(), tol=setup.tol, max_steps=setup.max_steps),
        on_failure="ignore",
    )


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def trained(
    setup: Setup,
    method: str,
    seed: int,
    data: Pictures,
    on_step: Callable[[nn.Module], None] | None = None,
) -> tuple[nn.Module, list[dict[str, Any]]]:
    """A network and its epochs."""
    generator = torch.Generator().manual_seed(seed)
    picture, labels = data.train.repeat(setup.copies, 1), data.train_y.repeat(setup.copies)
    count, pixels = picture.shape
    seen = half_hidden(count, pixels, generator)
    torch.manual_seed(seed)
    model = build(setup, method, pixels, data.classes)
    config = TrainingConfig(
        epochs=setup.epochs, batch_size=setup.batch_size, learning_rate=setup.rate,
        schedule="cosine", weight_decay=setup.weight_decay, optimizer="adamw", seed=seed,
    )  # fmt: skip
    target = whole(picture, labels, data.classes)
    x = given(picture, seen, data.classes)
    with dropping(model, setup.dropped):
        history = fit(model, x, target, config, loss=setup.loss(data.classes), on_step=on_step)
    return model, history.as_rows()


@contextmanager
def dropping(model: nn.Module, most: float) -> Iterator[None]:
    """Within it, a share of what is seen, between none and ``most`` and drawn anew for each sample,
    is as if hidden for the drivers, or for a twin; what has to be filled in stays the same."""

    def shown(_: nn.Module, given_: tuple[Tensor]) -> tuple[Tensor]:
        (x,) = given_
        share = most * torch.rand(len(x), 1, generator=noise())
        drawn = torch.rand(len(x), x.shape[1] // 2, generator=noise())
        return (torch.cat([x, (drawn >= share).to(x.dtype)], 1),)

    hook = model.register_forward_pre_hook(shown) if most else None
    try:
        yield
    finally:
        if hook is not None:
            hook.remove()


@torch.no_grad()
def tested(model: nn.Module | None, data: Pictures) -> list[dict[str, Any]]:
    """PSNR of the hidden pixels and accuracy of the class, for every kind and share of masks; of
    the mean image where there is no model."""
    generator = torch.Generator().manual_seed(TEST_MASKS)
    count, pixels = data.test.shape
    found = []
    for kind in KINDS:
        for share in SHARES:
            seen = masks(kind, share, count, pixels, generator)
            x = given(data.test, seen, data.classes)
            output = torch.zeros(count, pixels + data.classes) if model is None else model(x)
            errors = (output[:, :pixels] - data.test).square() * (1 - seen)
            right = output[:, pixels:].argmax(1) == data.test_y
            found.append(
                {
                    "kind": kind,
                    "share": share,
                    "psnr": -10 * math.log10(float(errors.sum() / (1 - seen).sum())),
                    "accuracy": 100 * float(right.double().mean()),
                }
            )
    return found


def run(method: str, seed: int, validation: bool = False, **changes: Any) -> dict[str, Any]:
    """One training as in `SETUPS`, or with some of it changed, and its test."""
    setup = replace(SETUPS[method], **changes)
    data = pictures(setup.task, seed, validation=validation)
    model, epochs = trained(setup, method, seed, data)
    last = epochs[-1]
    found = {
        "method": method,
        "seed": seed,
        "setup": asdict(setup),
        "parameters": parameters(model),
        "loss": last["loss"],
        "scores": tested(model, data),
        "mean": tested(None, data),
    }
    if isinstance(model, CompletionNetwork):
        proof = certify(model, *batch(data, seed), loss=setup.loss(data.classes))
        found["certificate"] = proof.as_dict()
        found["relaxations"] = {
            name: last[name] for name in ("free_steps", "nudged_steps", "unconverged")
        }
    return found


def batch(data: Pictures, seed: int) -> tuple[Tensor, Tensor]:
    """Training images for a certificate, half of their pixels hidden, at random places or as
    blocks."""
    generator = torch.Generator().manual_seed(seed)
    picture, labels = data.train[:CERTIFIED], data.train_y[:CERTIFIED]
    seen = half_hidden(len(picture), picture.shape[1], generator)
    return given(picture, seen, data.classes), whole(picture, labels, data.classes)


def measurements(methods: Sequence[str], seeds: Sequence[int]) -> list[Measurement]:
    """Every training, of the implicit gradient from the first `IMPLICIT_SEEDS` seeds alone."""
    return [
        Measurement(
            "completion",
            f"{method}, seed {seed}",
            f"{__name__}:run",
            (("method", method), ("seed", seed)),
            tasks=(SETUP.task,),
        )
        for method in methods
        for seed in (seeds[:IMPLICIT_SEEDS] if method == IMPLICIT else seeds)
    ]


def search(
    methods: Sequence[str], seeds: Sequence[int], changes: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Trainings on validation images with settings changed by words such as ``rate=0.01``; judged
    as `judged` says."""
    changed = dict(word.split("=", 1) for word in changes)
    unknown = set(changed) - set(asdict(SETUP))
    if unknown or any("=" not in word for word in changes):
        raise InvalidInputError(
            f"A change is NAME=VALUE, with one of {', '.join(asdict(SETUP))}, got {list(changes)}."
        )
    for method in methods:
        for seed in seeds:
            given_ = {name: json.loads(value) for name, value in changed.items()}
            found = run(method, seed, validation=True, **given_)
            yield {"judged": judged(found["scores"]), "rule": RULE, **found}


RULE = "psnr + accuracy/5, all six masks"


def judged(scores: Sequence[dict[str, Any]]) -> float:
    """PSNR and class as one number, the mean of all kinds and shares of masks: what counts as
    equivalent in either, 0.2 dB and a point, weighs the same."""
    return fmean(s["psnr"] + s["accuracy"] / 5 for s in scores)
