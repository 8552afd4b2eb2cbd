"""How long a training step takes, next to backpropagation's: all sides interleaved in one run.

Every round draws a batch and lets each contender train on it for one step (Adam, cross-entropy),
so that all of them see the same data, the same machine and the same moment. Data are the digits,
scaled up to 28 x 28 where the row asks for 784 inputs.
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

from toreqprop.bench.deq_baseline import DeepEquilibriumMLP
from toreqprop.gradients import CenteredEP, GradientEstimator, UnrolledGradient
from toreqprop.models import BackpropMLP, EquilibriumModel, LoopedMLP
from toreqprop.models.base import KernelName
from toreqprop.solution import Solution
from toreqprop.tasks import get

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


@dataclass
class Contender:
    """A model, its optimizer, and what it did so far."""

    name: str
    model: nn.Module
    optimizer: torch.optim.Optimizer
    times: list[float] = field(default_factory=list)
    cpu_times: list[float] = field(default_factory=list)
    steps: dict[str, list[int]] = field(default_factory=dict)
    residuals: dict[str, float] = field(default_factory=dict)
    loss: float = float("nan")

    @classmethod
    def of(cls, name: str, model: nn.Module, rate: float = 1e-3) -> Contender:
        """A contender trained by Adam, whose relaxations (if any) are noted."""
        contender = cls(name, model, torch.optim.Adam(model.parameters(), lr=rate))
        if isinstance(model, EquilibriumModel):
            model.register_relaxation_hook(_noting(contender))
        return contender

    def mean_steps(self) -> dict[str, float]:
        """Mean number of evaluations of each phase."""
        return {phase: sum(counts) / len(counts) for phase, counts in self.steps.items()}

    def train(self, x: Tensor, y: Tensor) -> None:
        """One training step, timed."""
        start, cpu_start = time.perf_counter(), time.process_time()
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        self.cpu_times.append(time.process_time() - cpu_start)
        self.times.append(time.perf_counter() - start)
        self.loss = loss.item()

    def forget(self) -> None:
        """Start counting anew, after the warm-up."""
        self.times.clear()
        self.cpu_times.clear()
        self.steps.clear()
        self.residuals.clear()

    def note(self, phase: str, steps: int, residual: float) -> None:
        self.steps.setdefault(phase, []).append(steps)
        self.residuals[phase] = max(self.residuals.get(phase, 0.0), residual)


def measure(
    setup: Setup,
    *,
    sizes: tuple[tuple[int, int, int], ...] = SIZES,
    against_torchdeq: bool = False,
    unrolled: bool = True,
    on_round: Callable[[], None] | None = None,
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


def batches(size: tuple[int, int, int], seed: int) -> Callable[[], tuple[Tensor, Tensor]]:
    """A source of random training batches of (batch, inputs, ...)."""
    batch, inputs, _ = size
    data = get("digits").load(seed, False)
    x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    if inputs != x.shape[1]:
        side = round(inputs**0.5)
        image = F.interpolate(x.view(-1, 1, 8, 8), size=(side, side), mode="bilinear")
        x = image.reshape(len(x), -1).contiguous()
    generator = torch.Generator().manual_seed(seed)

    def draw() -> tuple[Tensor, Tensor]:
        rows = torch.randint(0, len(x), (batch,), generator=generator)
        return x[rows], y[rows]

    return draw


def _contenders(
    setup: Setup, size: tuple[int, int, int], against_torchdeq: bool, unrolled: bool
) -> list[Contender]:
    _, inputs, hidden = size

    def looped(**options: Any) -> LoopedMLP:
        torch.manual_seed(setup.seed)
        return LoopedMLP(
            inputs, hidden, CLASSES, radius=setup.radius, tol=setup.tol,
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


def _noting(contender: Contender) -> Callable[[str, Solution], None]:
    nudged = iter(())

    def note(phase: str, solution: Solution) -> None:
        nonlocal nudged
        if phase == "free":
            nudged = iter(("+β", "−β"))  # type: ignore[arg-type]
        else:
            phase = next(nudged, phase)
        contender.note(phase, solution.steps, solution.worst_residual)

    return note


def _row(
    setup: Setup,
    size: tuple[int, int, int],
    contenders: list[Contender],
    peak: float,
    on_round: Callable[[], None] | None,
) -> Row:
    draw = batches(size, setup.seed)
    # Slow contenders get fewer rounds: all of them the same number, from the time of one round.
    started = time.perf_counter()
    _round(contenders, draw())
    _round(contenders, draw())
    budget = int(_SECONDS_PER_ROW / (time.perf_counter() - started) * 2)
    for _ in range(min(setup.warmup, budget)):
        _round(contenders, draw())
        _tell(on_round)
    train_in_turn(contenders, draw, max(10, min(setup.rounds, budget)), on_round)
    baseline = contenders[0]
    network = next(c.model for c in contenders if c.name == OURS)
    if not isinstance(network, LoopedMLP):
        raise AssertionError("ours is a LoopedMLP")
    timings = tuple(_timing(c, baseline, draw(), peak) for c in contenders)
    return Row(*size, TARGETS.get(size), timings, network.lipschitz())


def train_in_turn(
    contenders: list[Contender],
    draw: Callable[[], tuple[Tensor, Tensor]],
    rounds: int,
    on_round: Callable[[], None] | None = None,
) -> None:
    """Measure so many rounds, in each of which every contender trains on the same batch."""
    for contender in contenders:
        contender.forget()
    for number in range(rounds):
        # Whoever follows a large model finds a cold cache: take turns at that.
        turn = number % len(contenders)
        _round(contenders[turn:] + contenders[:turn], draw())
        _tell(on_round)


def _round(contenders: list[Contender], batch: tuple[Tensor, Tensor]) -> None:
    for contender in contenders:
        contender.train(*batch)
        if isinstance(contender.model, DeepEquilibriumMLP):
            info = contender.model.last_info
            contender.note("free", int(info["nstep"].max()), float(info["rel_lowest"].max()))


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


def _tell(on_round: Callable[[], None] | None) -> None:
    if on_round is not None:
        on_round()


_SECONDS_PER_ROW = 40.0
