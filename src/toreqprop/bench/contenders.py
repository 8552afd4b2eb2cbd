"""Models that train on the same batches in turn, timed: the machinery of the speed tables."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop.bench.deq_baseline import DeepEquilibriumMLP
from toreqprop.models import EquilibriumModel
from toreqprop.tasks import get


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
    _seen: list[tuple[str, int, Tensor]] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, model: nn.Module, rate: float = 1e-3) -> Contender:
        """A contender trained by Adam, whose relaxations (if any) are noted."""
        contender = cls(name, model, torch.optim.Adam(model.parameters(), lr=rate))
        if isinstance(model, EquilibriumModel):
            # Inside the clock a relaxation is only remembered.
            model.register_relaxation_hook(
                lambda phase, found: contender._seen.append((phase, found.steps, found.residual))
            )
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
        self._note_relaxations()

    def _note_relaxations(self) -> None:
        for phase, steps, residual in self._seen:
            self.note(phase, steps, float(residual.max()))
        self._seen.clear()

    def forget(self) -> None:
        """Start counting anew, after the warm-up."""
        self.times.clear()
        self.cpu_times.clear()
        self.steps.clear()
        self.residuals.clear()

    def note(self, phase: str, steps: int, residual: float) -> None:
        """Count one relaxation."""
        self.steps.setdefault(phase, []).append(steps)
        self.residuals[phase] = max(self.residuals.get(phase, 0.0), residual)


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


def train_in_turn(
    contenders: list[Contender],
    draw: Callable[[], tuple[Tensor, Tensor]],
    rounds: int,
    on_round: Callable[[], None] = lambda: None,
) -> None:
    """Measure so many rounds, in each of which every contender trains on the same batch."""
    for contender in contenders:
        contender.forget()
    for number in range(rounds):
        # Whoever follows a large model finds a cold cache: take turns at that.
        turn = number % len(contenders)
        train_once(contenders[turn:] + contenders[:turn], draw())
        on_round()


def train_once(contenders: list[Contender], batch: tuple[Tensor, Tensor]) -> None:
    """Let every contender train on the batch, one after the other."""
    for contender in contenders:
        contender.train(*batch)
        if isinstance(contender.model, DeepEquilibriumMLP):
            info = contender.model.last_info
            contender.note("free", int(info["nstep"].max()), float(info["rel_lowest"].max()))
