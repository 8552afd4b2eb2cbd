"""Models that train on the same batches in turn, timed: the machinery of the speed table."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop.models import EquilibriumModel
from toreqprop.solution import Solution

Draw = Callable[[], tuple[Tensor, Tensor]]


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
    _seen: list[tuple[str, Solution]] = field(default_factory=list)

    @classmethod
    def of(
        cls, name: str, model: nn.Module, rate: float = 1e-3, *, fused: bool | None = None
    ) -> Contender:
        """A contender trained by Adam, whose relaxations (if any) are noted."""
        optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=fused)
        contender = cls(name, model, optimizer)
        if isinstance(model, EquilibriumModel):
            # Inside the clock a relaxation is only remembered.
            model.register_relaxation_hook(lambda *found: contender._seen.append(found))
        return contender

    def mean_steps(self) -> dict[str, float]:
        """Mean number of evaluations of each phase."""
        return {phase: sum(counts) / len(counts) for phase, counts in self.steps.items()}

    def train(self, x: Tensor, y: Tensor) -> None:
        """One training step, timed."""
        start, cpu_start = time.perf_counter(), time.process_time()
        self.optimizer.zero_grad()
        output = self.model(x)
        loss = F.cross_entropy(output.reshape(-1, output.shape[-1]), y.reshape(-1))
        loss.backward()
        self.optimizer.step()
        self.cpu_times.append(time.process_time() - cpu_start)
        self.times.append(time.perf_counter() - start)
        for phase, found in self._seen:
            self.steps.setdefault(phase, []).append(found.steps)
            worst = max(self.residuals.get(phase, 0.0), found.worst_residual)
            self.residuals[phase] = worst
        self._seen.clear()

    def forget(self) -> None:
        """Start counting anew, after the warm-up."""
        for kept in (self.times, self.cpu_times, self.steps, self.residuals):
            kept.clear()  # type: ignore[attr-defined]


def train_in_turn(
    contenders: list[Contender],
    draw: Draw,
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
