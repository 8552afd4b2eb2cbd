"""Models that train on the same batches in turn, timed: the machinery of the speed table."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop.models import EquilibriumModel
from toreqprop.solution import Solution

Draw = Callable[[], tuple[Tensor, Tensor]]


@dataclass
class Contender:
    """A model, its optimizer, what its steps are made within, and what it did so far."""

    name: str
    model: nn.Module
    optimizer: torch.optim.Optimizer
    within: Callable[[], AbstractContextManager[None]] = nullcontext
    times: list[float] = field(default_factory=list)
    cpu_times: list[float] = field(default_factory=list)
    steps: dict[str, list[int]] = field(default_factory=dict)
    residuals: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        name: str,
        model: nn.Module,
        rate: float = 1e-3,
        *,
        fused: bool | None = None,
        within: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Contender:
        """A contender trained by Adam."""
        optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=fused)
        return cls(name, model, optimizer, within)

    def mean_steps(self) -> dict[str, float]:
        """Mean number of evaluations of each phase."""
        return {phase: sum(counts) / len(counts) for phase, counts in self.steps.items()}

    def train(self, x: Tensor, y: Tensor) -> None:
        """One training step, timed."""
        with self.within():
            start, cpu_start = time.perf_counter(), time.process_time()
            self._step(x, y)
            self.cpu_times.append(time.process_time() - cpu_start)
            self.times.append(time.perf_counter() - start)

    def look(self, x: Tensor, y: Tensor) -> None:
        """One training step outside of the clock, whose relaxations (if any) are noted."""
        model = self.model
        with self.within():
            if not isinstance(model, EquilibriumModel):
                self._step(x, y)
                return
            key = model.register_relaxation_hook(self._note)
            self._step(x, y)
            model.remove_relaxation_hook(key)

    def _step(self, x: Tensor, y: Tensor) -> None:
        self.optimizer.zero_grad()
        output = self.model(x)
        loss = F.cross_entropy(output.reshape(-1, output.shape[-1]), y.reshape(-1))
        loss.backward()
        self.optimizer.step()

    def _note(self, phase: str, found: Solution) -> None:
        self.steps.setdefault(phase, []).append(found.steps)
        worst = max(self.residuals.get(phase, 0.0), found.worst_residual)
        self.residuals[phase] = worst

    def forget(self) -> None:
        """Start counting anew, after the warm-up."""
        for kept in (self.times, self.cpu_times, self.steps, self.residuals):
            kept.clear()  # type: ignore[attr-defined]


def train_in_turn(
    contenders: list[Contender],
    draw: Draw,
    rounds: int,
    turn: int,
    after: Callable[[int], None] = lambda number: None,
) -> None:
    """Measure so many rounds, in each of which every contender trains on the same batches.

    As in a training, a step mostly follows a step of the same network: a contender's turn is one
    step that is looked at and ``turn`` that are timed. Where all take turns at every step, caches
    hold what others have left there. ``after`` is called with the number of every round.
    """
    for contender in contenders:
        contender.forget()
    orders = random.Random(0)
    for number in range(rounds):
        first, *rest = [draw() for _ in range(1 + turn)]
        # Whoever follows a large model finds a cold cache: it is not always the same one.
        for contender in orders.sample(contenders, len(contenders)):
            contender.look(*first)
            for batch in rest:
                contender.train(*batch)
        after(number)


def shares(one: Contender, other: Contender, turn: int) -> list[float]:
    """Of every round, one's median processor time over the other's: between rounds a machine may
    become faster or slower."""
    return [
        median(one.cpu_times[at : at + turn]) / median(other.cpu_times[at : at + turn])
        for at in range(0, len(one.cpu_times), turn)
    ]


def median(values: list[float]) -> float:
    """The upper one, where there are two."""
    return sorted(values)[len(values) // 2]
