"""Norms: is what the tight bound estimates at every step really below its radius?

Networks are trained from weights beyond their radius, so that the ball is at work at every step.
After every step of the optimizer the norm of every weight it hands out is computed from all of its
eigenvalues in double precision, which shares nothing with the estimate.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.atomic import write_atomically
from toreqprop.energies import TightBall, TightConvolutionBall
from toreqprop.energies.tight_ball import norm_is_below, top_singular
from toreqprop.errors import ConvergenceWarning, InvalidInputError
from toreqprop.models import EquilibriumTransformer, HopfieldConvNet, HopfieldMLP, LoopedMLP
from toreqprop.models.base import EquilibriumModel
from toreqprop.models.constrained import Constrained

RATES = (1e-4, 1e-3, 1e-2, 0.1)
OPTIMIZERS = ("sgd", "adam")
LOOPED, ONE_WAY, STACK, CONV, TOKENS = "looped", "asymmetric", "stack", "conv", "transformer"
FEATURES, CLASSES, BATCH, LENGTH = 16, 5, 16, 6
ROUNDING = 1e-6
"""Of the largest ratio: weights are float32."""

LARGE, PAIRS, CLOSE = 1000, 40, 1e-3
"""Rows and columns from which a norm is proven from above, after so many pairs of products from a
random start; by how much the bound is raised until the proof holds."""

PLAN: dict[str, dict[int, int]] = {
    LOOPED: {32: 4000, 64: 2000, 128: 800, 256: 250, 512: 80, 1024: 40, 2048: 16},
    ONE_WAY: {32: 3000, 128: 400, 512: 20, 1024: 8, 2048: 2},
    STACK: {32: 2000, 128: 300, 512: 10, 1024: 4, 2048: 1},
    CONV: {4: 150, 16: 20, 32: 2},
    TOKENS: {32: 250, 128: 25},
}
"""Training steps of each cell, by kind and width (of a convolutional network: channels)."""


@dataclass(frozen=True)
class Setup:
    """How it is measured; ``share`` is that of the steps of `PLAN`."""

    kinds: tuple[str, ...] = tuple(PLAN)
    rates: tuple[float, ...] = RATES
    optimizers: tuple[str, ...] = OPTIMIZERS
    radius: float = 0.95
    beyond: float = 3.0
    share: float = 1.0
    widest: int = 2048
    seed: int = 0

    def cells(self) -> Iterator[tuple[str, int, str, float]]:
        """Kind, width, optimizer and rate of every training."""
        for kind in self.kinds:
            for width in PLAN[kind]:
                for optimizer in self.optimizers:
                    for rate in self.rates:
                        if width <= self.widest:
                            yield kind, width, optimizer, rate

    def steps(self, kind: str, width: int) -> int:
        """Training steps of a cell."""
        return max(1, round(self.share * PLAN[kind][width]))


@dataclass(frozen=True)
class Cell:
    """One training: ``least``, ``worst`` and ``last`` are norms over radii, the smallest and the
    largest of all steps and weights, and the smallest after the last; ``above`` counts the steps
    with a norm above its radius, ``raised`` the times a proof failed and the margin rose."""

    kind: str
    width: int
    optimizer: str
    rate: float
    steps: int
    weights: int
    least: float
    worst: float
    last: float
    above: int
    raised: int
    seconds: float


def build(setup: Setup, kind: str, width: int) -> EquilibriumModel:
    """A network as by default but for its radius, its weights beyond it."""
    options: dict[str, Any] = {"radius": setup.radius, "on_failure": "ignore"}
    model: EquilibriumModel
    if kind in (LOOPED, ONE_WAY):
        model = LoopedMLP(FEATURES, width, CLASSES, symmetric=kind == LOOPED, **options)
    elif kind == STACK:
        model = HopfieldMLP([FEATURES, width, width, width, CLASSES], **options)
    elif kind == CONV:
        model = HopfieldConvNet((1, 16, 16), (width, 2 * width), CLASSES, kernel_size=3, **options)
    else:
        model = EquilibriumTransformer(CLASSES, LENGTH, width=width, layers=2, on_failure="ignore")
    with torch.no_grad():
        for module, ball in tight_weights(model):
            shape = module.raw.shape
            module.raw.normal_().mul_(setup.beyond * ball.radius / (2 * shape[1] ** 0.5))
            if isinstance(ball, TightConvolutionBall):
                module.raw.div_((shape[-1] * shape[-2]) ** 0.5)
    return model


def tight_weights(model: EquilibriumModel) -> list[tuple[Constrained, TightBall]]:
    """Every weight that a tight ball keeps, with its ball."""
    return [
        (module, ball)
        for module in model.modules()
        if isinstance(module, Constrained)
        for ball in module.constraints
        if isinstance(ball, TightBall)
    ]


@torch.no_grad()
def true_norm(weight: Tensor, ball: TightBall) -> float:
    """The norm from all eigenvalues, in double precision: of W itself where it is symmetric, else
    of the smaller of WᵀW and WWᵀ; a convolution is written out as a matrix first.

    Where that takes seconds (`LARGE`), an upper bound that Cholesky proves, `CLOSE` to the norm.
    """
    exact = weight.detach().double()
    if isinstance(ball, TightConvolutionBall):
        shape = ball.start[0].shape
        reach = [side - 1 for side in exact.shape[-2:]]
        pixels = torch.eye(shape.numel(), dtype=exact.dtype).reshape(-1, *shape)
        exact = F.conv2d(pixels, exact, None, 1, reach, 1, ball.groups).flatten(1)
    if min(exact.shape) > LARGE:
        start = torch.randn(exact.shape[1], generator=torch.Generator().manual_seed(1)).to(exact)
        found, _, _ = top_singular(lambda v: exact @ v, lambda u: u @ exact, start, PAIRS)
        bound = (1 + CLOSE) * float(found)
        while not norm_is_below(exact, bound, ball.symmetric):
            bound *= 1 + CLOSE
        return bound
    if ball.symmetric:
        return float(torch.linalg.eigvalsh(exact).abs().max())
    gram = exact @ exact.mT if exact.shape[0] <= exact.shape[1] else exact.mT @ exact
    return float(torch.linalg.eigvalsh(gram)[-1]) ** 0.5


def run(setup: Setup, kind: str, width: int, optimizer: str, rate: float) -> Cell:
    """Train one network and compute every norm after every step."""
    torch.manual_seed(setup.seed)
    model = build(setup, kind, width)
    chosen = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer](
        model.parameters(), lr=rate
    )
    kept, count = tight_weights(model), setup.steps(kind, width)
    before = sum(float(ball.margin) for _, ball in kept)
    least, worst, above, last = float("inf"), 0.0, 0, 0.0
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # counted below
        for _ in range(count):
            x, y = _batch(kind)
            chosen.zero_grad()
            output = model(x)
            F.cross_entropy(output.flatten(0, -2), y.flatten()).backward()
            chosen.step()
            with torch.no_grad():
                ratios = [true_norm(m.weight, ball) / ball.radius for m, ball in kept]
            least, worst, last = min(least, *ratios), max(worst, *ratios), min(ratios)
            above += max(ratios) > 1 + ROUNDING
    raised = sum(float(ball.margin) for _, ball in kept) - before
    return Cell(
        kind, width, optimizer, rate, count, len(kept), least, worst, last, above,
        round(raised / 0.02), time.process_time() - started,
    )  # fmt: skip


def _batch(kind: str) -> tuple[Tensor, Tensor]:
    """Fresh samples of tasks that can be learnt."""
    if kind == TOKENS:
        tokens = torch.randint(0, CLASSES, (BATCH, LENGTH))
        return tokens, tokens.flip(1)
    x = torch.randn(BATCH, 256 if kind == CONV else FEATURES)
    return x, x[:, :CLASSES].argmax(1)


def measure(
    setup: Setup, path: Path, on_cell: Callable[[Cell], None] = lambda found: None
) -> list[Cell]:
    """Every cell of ``setup``; those in the file already are kept, new ones are added to it."""
    known = read(path, setup) if path.exists() else []
    done = {(c.kind, c.width, c.optimizer, c.rate): c for c in known}
    for key in setup.cells():
        if key not in done:
            done[key] = run(setup, *key)
            content = {"setup": asdict(setup), "cells": [asdict(c) for c in done.values()]}
            write_atomically(path, json.dumps(content, indent=1))
        on_cell(done[key])
    return [done[key] for key in setup.cells()]


def read(path: Path, setup: Setup) -> list[Cell]:
    """The cells in a file.

    Raises:
        InvalidInputError: they were measured another way, or it is no such file.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text())
        kept: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in content["setup"].items()
        }
        stored, cells = Setup(**kept), [Cell(**cell) for cell in content["cells"]]
    except (ValueError, TypeError, KeyError, AttributeError, OSError):
        raise InvalidInputError(
            f"{path} holds no norms that can be read: remove it, or choose another --output."
        ) from None
    wanted = replace(
        setup, kinds=stored.kinds, rates=stored.rates, optimizers=stored.optimizers,
        widest=stored.widest,
    )  # fmt: skip
    if stored != wanted:
        raise InvalidInputError(f"{path} holds norms of another setup: choose another --output.")
    return cells


def render_markdown(cells: list[Cell]) -> str:
    """One row for each kind and width, over all rates and optimizers; then the sum."""
    lines = [
        "| network | width | steps | norms computed | norm over radius, least and largest "
        "| after training | steps above | margins raised |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind, width in dict.fromkeys((c.kind, c.width) for c in cells):
        own = [c for c in cells if (c.kind, c.width) == (kind, width)]
        lines.append(_row(kind, str(width), own))
    lines.append(_row("**all**", "", cells))
    return "\n".join(lines)


def _row(kind: str, width: str, cells: list[Cell]) -> str:
    steps, norms = sum(c.steps for c in cells), sum(c.steps * c.weights for c in cells)
    return (
        f"| {kind} | {width} | {steps:,} | {norms:,} | {min(c.least for c in cells):.4f} to "
        f"{max(c.worst for c in cells):.4f} | {min(c.last for c in cells):.4f} and above "
        f"| {sum(c.above for c in cells)} | {sum(c.raised for c in cells)} |"
    )
