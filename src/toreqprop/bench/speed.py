"""How long a training step takes, next to backpropagation's: all sides interleaved in one run.

Every round draws a batch and lets each contender train on it for one step (Adam, cross-entropy),
so that all of them see the same data, the same machine and the same moment. Data are the digits,
scaled up to 28 x 28 where the row asks for 784 inputs. Radius and gain are those of the benchmark's
fast rows, which say how accurate such networks are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from toreqprop.bench.contenders import Contender, batches, train_in_turn, train_once
from toreqprop.bench.deq_baseline import DeepEquilibriumMLP
from toreqprop.bench.hyperparameters import settings
from toreqprop.gradients import CenteredEP, GradientEstimator, UnrolledGradient
from toreqprop.models import BackpropMLP, LoopedMLP
from toreqprop.models.base import KernelName

SIZES = ((64, 64, 128), (128, 784, 256), (128, 784, 1024))
"""(batch, inputs, hidden) of the three rows."""

TARGETS = {(64, 64, 128): 1.5, (128, 784, 256): 1.2, (128, 784, 1024): 2.0}
"""Step time over backpropagation's that the project set out to reach."""

CLASSES = 10
BASELINE, OURS, UNROLLED = "backprop", "TorEqProp", "unrolled 30"


@dataclass(frozen=True)
class Setup:
    """What is measured, and how long for."""

    radius: float = 0.05
    tol: float = 1e-3
    kernel: KernelName | None = "auto"
    gradient: GradientEstimator | None = None
    rounds: int = 100
    warmup: int = 100
    seed: int = 42
    rate: float = 1e-3


@dataclass(frozen=True)
class Timing:
    """One contender in one row.

    ``ratio`` is best time over backpropagation's best, ``median_ratio`` the same of medians and
    ``cpu_ratio`` of median processor time, which other programs on the machine disturb least;
    ``peak_fraction`` counts matrix products alone. ``steps`` and ``residual`` (mean number of
    evaluations of f, worst relative residual) are given for each phase where there are any.
    """

    name: str
    best_ms: float
    median_ms: float
    ratio: float
    median_ratio: float
    cpu_ratio: float
    gigaflop: float
    peak_fraction: float
    loss: float
    steps: dict[str, float] = field(default_factory=dict)
    residual: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """All contenders at one size."""

    batch: int
    inputs: int
    hidden: int
    gain: float
    target: float | None
    timings: tuple[Timing, ...]
    contraction: float

    def of(self, name: str) -> Timing:
        """The timing of that contender."""
        return next(t for t in self.timings if t.name == name)


@dataclass(frozen=True)
class SpeedTable:
    """The rows and the conditions they were measured under."""

    rows: tuple[Row, ...]
    peak_gflops: float
    conditions: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def measure(
    setup: Setup,
    *,
    sizes: tuple[tuple[int, int, int], ...] = SIZES,
    against_torchdeq: bool = False,
    unrolled: bool = True,
    on_round: Callable[[], None] = lambda: None,
) -> SpeedTable:
    """Measure every row; the number of torch threads is the caller's choice."""
    peak = matrix_product_peak()
    rows = []
    for size in sizes:
        contenders = _contenders(setup, size, against_torchdeq, unrolled)
        rows.append(_row(setup, size, contenders, peak, on_round))
    conditions = {
        **asdict(setup),
        "gradient": repr(setup.gradient or CenteredEP()),
        "optimizer": f"torch.optim.Adam(lr={setup.rate:g})",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "dtype": "float32",
        "data": "digits, scaled up to 28 x 28 where there are 784 inputs",
    }
    return SpeedTable(tuple(rows), peak, conditions)


def matrix_product_peak(size: int = 1024, batch: int = 128, repeats: int = 30) -> float:
    """Best rate of a (batch, size) by (size, size) product in GFLOP/s."""
    a, b = torch.randn(batch, size), torch.randn(size, size)
    out = torch.empty(batch, size)
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        torch.mm(a, b, out=out)
        best = min(best, time.perf_counter() - start)
    return 2e-9 * batch * size * size / best


def gain_of(inputs: int) -> float:
    """The readout's gain for images of so many pixels, as the benchmark's rows have it."""
    return settings("mnist" if inputs == 784 else "digits").ep.gain


def _contenders(
    setup: Setup, size: tuple[int, int, int], against_torchdeq: bool, unrolled: bool
) -> list[Contender]:
    _, inputs, hidden = size

    def looped(**options: Any) -> LoopedMLP:
        torch.manual_seed(setup.seed)
        return LoopedMLP(
            inputs, hidden, CLASSES, radius=setup.radius, gain=gain_of(inputs), tol=setup.tol,
            kernel=setup.kernel, **options,
        )  # fmt: skip

    torch.manual_seed(setup.seed)
    models: dict[str, nn.Module] = {
        BASELINE: BackpropMLP(inputs, hidden, CLASSES),
        OURS: looped(gradient=setup.gradient),
    }
    if unrolled:
        models[UNROLLED] = looped(gradient=UnrolledGradient(steps=30))
    if against_torchdeq:
        for solver in ("fixed_point_iter", "anderson"):
            models[f"torchdeq {solver}"] = DeepEquilibriumMLP(looped(), solver, setup.tol)
    return [Contender.of(name, model, setup.rate) for name, model in models.items()]


def _row(
    setup: Setup,
    size: tuple[int, int, int],
    contenders: list[Contender],
    peak: float,
    on_round: Callable[[], None],
) -> Row:
    draw = batches(size, setup.seed)
    # Slow contenders get fewer rounds: all of them the same number, from the time of one round.
    started = time.perf_counter()
    train_once(contenders, draw())
    train_once(contenders, draw())
    budget = int(_SECONDS_PER_ROW / (time.perf_counter() - started) * 2)
    for _ in range(min(setup.warmup, budget)):
        train_once(contenders, draw())
        on_round()
    train_in_turn(contenders, draw, max(10, min(setup.rounds, budget)), on_round)
    baseline = contenders[0]
    network = next(c.model for c in contenders if c.name == OURS)
    if not isinstance(network, LoopedMLP):
        raise AssertionError("ours is a LoopedMLP")
    timings = tuple(_timing(c, baseline, draw(), peak) for c in contenders)
    return Row(*size, gain_of(size[1]), TARGETS.get(size), timings, network.lipschitz())


def _timing(
    contender: Contender, baseline: Contender, batch: tuple[Tensor, Tensor], peak: float
) -> Timing:
    steps, residuals = contender.mean_steps(), dict(contender.residuals)
    times, loss = sorted(contender.times), contender.loss
    reference = sorted(baseline.times)
    with FlopCounterMode(display=False) as counter:
        F.cross_entropy(contender.model(batch[0]), batch[1]).backward()
    gigaflop = counter.get_total_flops() * 1e-9
    middle = len(times) // 2
    return Timing(
        contender.name,
        times[0] * 1e3,
        times[middle] * 1e3,
        times[0] / reference[0],
        times[middle] / reference[middle],
        sorted(contender.cpu_times)[middle] / sorted(baseline.cpu_times)[middle],
        gigaflop,
        gigaflop / times[0] / peak,
        loss,
        steps,
        residuals,
    )


_SECONDS_PER_ROW = 40.0
