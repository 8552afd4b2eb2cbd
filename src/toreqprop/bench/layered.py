"""Layered networks: a training step next to backpropagation's, its growth with depth, 32 layers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from toreqprop.bench.contenders import Contender, batches, train_in_turn
from toreqprop.certificate import certify
from toreqprop.models import HopfieldMLP
from toreqprop.tasks import get
from toreqprop.training import Epoch, TrainingConfig, accuracy, fit

TARGETS = {(784, 1024, 10): 2.0, (784, 1024, 1024, 10): 6.0}
"""Step time over backpropagation's that the project set out to reach, batch 128, one thread."""

DEPTHS = (2, 4, 8, 16, 32)
WIDTH = 32
DEEPEST = 32


@dataclass(frozen=True)
class LayeredRow:
    """A training step of `HopfieldMLP` and of the feed-forward network of the same sizes.

    ``steps`` and ``residual`` are mean sweeps and the worst relative residual, for each phase.
    """

    sizes: tuple[int, ...]
    target: float
    milliseconds: float
    backprop_milliseconds: float
    ratio: float
    median_ratio: float
    steps: dict[str, float]
    residual: dict[str, float]


@dataclass(frozen=True)
class DepthPoint:
    """A training step of a deep stack; ``per_layer`` is its time over the number of layers."""

    layers: int
    milliseconds: float
    per_layer: float
    free_steps: float
    nudged_steps: float


@dataclass(frozen=True)
class DeepRun:
    """The deepest stack trained on digits; cosines are the smallest of any tensor."""

    layers: int
    epochs: int
    test_accuracy: float
    chance: float
    cosine_before: float
    cosine_after: float
    certified: bool
    lipschitz: float
    seconds: float
    losses: tuple[float, ...]


def feed_forward(sizes: tuple[int, ...]) -> nn.Sequential:
    """The backpropagation network of the same sizes, with tanh between its layers."""
    parts: list[nn.Module] = []
    for below, above in itertools.pairwise(sizes):
        parts += [nn.Linear(below, above), nn.Tanh()]
    return nn.Sequential(*parts[:-1])


def step_times(rounds: int = 30, seed: int = 42) -> list[LayeredRow]:
    """Both networks trained in turn on the same batches; the threads are the caller's choice."""
    rows = []
    for sizes, target in TARGETS.items():
        torch.manual_seed(seed)
        ours = Contender.of("TorEqProp", HopfieldMLP(sizes))
        theirs = Contender.of("backprop", feed_forward(sizes))
        draw = batches((128, sizes[0], 0), seed)
        train_in_turn([theirs, ours], draw, 5)  # warms up
        train_in_turn([theirs, ours], draw, rounds)
        mine, other = sorted(ours.times), sorted(theirs.times)
        middle = len(mine) // 2
        rows.append(
            LayeredRow(
                sizes, target, 1e3 * mine[0], 1e3 * other[0], mine[0] / other[0],
                mine[middle] / other[middle], ours.mean_steps(), dict(ours.residuals),
            )
        )  # fmt: skip
    return rows


def depth_cost(
    depths: tuple[int, ...] = DEPTHS, rounds: int = 8, seed: int = 42
) -> list[DepthPoint]:
    """One training step of `HopfieldMLP.deep` on digits, at every depth in turn."""
    draw, contenders = batches((64, 64, 0), seed), []

    def draw_doubles() -> tuple[Tensor, Tensor]:
        x, y = draw()
        return x.double(), y

    for layers in depths:
        torch.manual_seed(seed)
        contenders.append(Contender.of(str(layers), _deep(layers)))
    train_in_turn(contenders, draw_doubles, 1)  # warms up
    train_in_turn(contenders, draw_doubles, rounds)
    points = []
    for layers, contender in zip(depths, contenders, strict=True):
        best, steps = 1e3 * min(contender.times), contender.mean_steps()
        nudged = steps["nudged"]
        points.append(DepthPoint(layers, best, best / layers, steps["free"], nudged))
    return points


def growth(points: list[DepthPoint]) -> float:
    """Exponent of the time of a step as a power of depth, by least squares: 1 is linear."""
    logs = np.log([[p.layers, p.milliseconds] for p in points])
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


def train_deepest(
    epochs: int = 12, seed: int = 42, on_epoch: Callable[[Epoch], None] | None = None
) -> DeepRun:
    """Train the deepest stack on digits, certified before and after; the test data is used once."""
    data = get("digits").load(seed, False)
    x, test_x = (torch.from_numpy(a).double() for a in (data.train_x, data.test_x))
    y, test_y = torch.from_numpy(data.train_y), torch.from_numpy(data.test_y)
    torch.manual_seed(seed)
    model = _deep(DEEPEST)
    before = certify(model, x[:64], y[:64])
    config = TrainingConfig(epochs=epochs, learning_rate=0.01, schedule="cosine", seed=seed)
    history = fit(model, x, y, config, on_epoch=on_epoch)
    after = certify(model, x[:64], y[:64])
    return DeepRun(
        DEEPEST, epochs, accuracy(model, test_x, test_y), data.chance, before.min_cosine,
        after.min_cosine, before.ok and after.ok, model.lipschitz(), history.seconds,
        tuple(e.loss for e in history.epochs),
    )  # fmt: skip


def draw_depth(points: list[DepthPoint], folder: Path) -> list[Path]:
    """Time of a training step and sweeps of its phases against depth."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3.4), layout="constrained")
    cost, sweeps = figure.subplots(1, 2)
    layers = [p.layers for p in points]
    cost.loglog(layers, [p.milliseconds for p in points], "o-", label="measured")
    last = points[-1]
    linear = [last.milliseconds * n / last.layers for n in layers]
    cost.loglog(layers, linear, "k--", label="linear in depth")
    cost.set(xlabel="hidden layers", ylabel="ms for a training step")
    sweeps.semilogx(layers, [p.free_steps for p in points], "o-", label="free phase")
    sweeps.semilogx(layers, [p.nudged_steps for p in points], "s-", label="nudged phase")
    sweeps.set(xlabel="hidden layers", ylabel="sweeps", ylim=(0, None))
    for axes in (cost, sweeps):
        axes.set_xticks(layers, [str(n) for n in layers])
        axes.minorticks_off()
        axes.legend()
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"layered_depth.{kind}" for kind in ("svg", "png")]
    for path in paths:
        figure.savefig(path, dpi=150)
    return paths


def as_dict(rows: list[LayeredRow], points: list[DepthPoint], run: DeepRun) -> dict[str, Any]:
    """Plain data for JSON."""
    return {
        "rows": [asdict(row) for row in rows],
        "depth": [asdict(point) for point in points],
        "growth_exponent": growth(points),
        "deepest": asdict(run),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def _deep(layers: int) -> HopfieldMLP:
    """Double precision: what a nudge at the top moves at the bottom is small."""
    return HopfieldMLP.deep(64, WIDTH, layers, 10).double()
