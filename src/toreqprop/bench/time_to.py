"""Processor time of whole trainings until networks know a held-out part of the training images.

The training images are split once per seed; the test set is looked at after training alone, and
chooses nothing. Every arm gets the same small search over learning rates, on a seed of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop.bench.depth import plain
from toreqprop.bench.speed_rows import enlarge, true_norms
from toreqprop.energies.tight_ball import MARGIN
from toreqprop.models import EquilibriumModel, LoopedMLP
from toreqprop.tasks import get

OURS, ONE, TWO = "TorEqProp", "one hidden layer", "two hidden layers"
ARMS = (OURS, ONE, TWO)


@dataclass(frozen=True)
class Setup:
    """What is trained: the same on every side but for the learning rate, which is searched for."""

    task: str = "mnist"
    full: bool = True
    goal: float = 0.98
    width: int = 256
    norm: float = 0.95
    tol: float = 1e-2
    batch: int = 64
    held_out: int = 10_000
    most_epochs: int = 20
    rates: tuple[float, ...] = (5e-4, 1e-3, 2e-3)
    search_seed: int = 1
    seeds: tuple[int, ...] = (42, 43, 44)


@dataclass(frozen=True)
class Run:
    """One training: ``epochs`` and ``seconds`` (processor time of training alone) until the goal,
    None where it was not reached; accuracies at the end; norm and steps of an equilibrium."""

    arm: str
    rate: float
    seed: int
    reached: bool
    epochs: int
    seconds: float
    wall_seconds: float
    validation: float
    test: float | None
    norm: float | None = None
    steps: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Study:
    """The search and the runs, as plain data."""

    setup: Setup
    search: tuple[Run, ...]
    runs: tuple[Run, ...]

    def seconds(self, arm: str) -> float | None:
        """Mean processor time to the goal; None where a seed did not get there."""
        mine = [r for r in self.runs if r.arm == arm]
        if not mine or not all(r.reached for r in mine):
            return None
        return sum(r.seconds for r in mine) / len(mine)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        means = {arm: self.seconds(arm) for arm in ARMS}
        ours = means[OURS]
        ratios = {a: None if ours is None or s is None else ours / s for a, s in means.items()}
        return {**asdict(self), "mean_seconds": means, "ratio": ratios}


def study(setup: Setup, on_epoch: Callable[[str], None] = lambda line: None) -> Study:
    """Search, then run every seed at the rates found."""
    search: list[Run] = []
    chosen: dict[str, float] = {}
    for arm in ARMS:
        tried = [train(setup, arm, rate, setup.search_seed, on_epoch) for rate in setup.rates]
        search += tried
        # Whoever is there first, and of those that never are, who came closest.
        best = min(tried, key=lambda r: (not r.reached, r.seconds if r.reached else -r.validation))
        chosen[arm] = best.rate
    runs = [
        train(setup, arm, chosen[arm], seed, on_epoch, scored=True)
        for seed in setup.seeds
        for arm in ARMS
    ]
    return Study(setup, tuple(search), tuple(runs))


def model_of(setup: Setup, arm: str, inputs: int, classes: int) -> nn.Module:
    """The arm's network; the equilibrium's coupling starts at the norm it is to have."""
    if arm != OURS:
        return plain(inputs, setup.width, 1 if arm == ONE else 2, classes)
    radius = setup.norm * MARGIN
    model = LoopedMLP(inputs, setup.width, classes, radius=radius, bound="tight", tol=setup.tol)
    enlarge(model)
    return model


def train(
    setup: Setup,
    arm: str,
    rate: float,
    seed: int,
    on_epoch: Callable[[str], None] = lambda line: None,
    *,
    scored: bool = False,
) -> Run:
    """One training, to the goal or the last epoch; ``scored`` looks at the test set afterwards."""
    data = get(setup.task).load(seed, setup.full)
    x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    held, rows = order[: setup.held_out], order[setup.held_out :]
    torch.manual_seed(seed)
    model = model_of(setup, arm, x.shape[1], data.classes)
    taken: dict[str, list[int]] = {}
    if isinstance(model, EquilibriumModel):
        model.register_relaxation_hook(
            lambda phase, found: taken.setdefault(phase, []).append(found.steps)
        )
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    shuffle = torch.Generator().manual_seed(seed)
    spent = wall = score = 0.0
    for epoch in range(1, setup.most_epochs + 1):
        start, begin = time.process_time(), time.perf_counter()
        taken.clear()
        for part in rows[torch.randperm(len(rows), generator=shuffle)].split(setup.batch):
            optimizer.zero_grad()
            F.cross_entropy(model(x[part]), y[part]).backward()
            optimizer.step()
        spent, wall = spent + time.process_time() - start, wall + time.perf_counter() - begin
        steps = {phase: sum(counts) / len(counts) for phase, counts in taken.items()}
        score = accuracy(model, x[held], y[held])
        on_epoch(f"{arm}, rate {rate:g}, seed {seed}, epoch {epoch}: {score:.2%}")
        if score >= setup.goal:
            break
    test = None
    if scored:
        test = accuracy(model, torch.from_numpy(data.test_x), torch.from_numpy(data.test_y))
    norm = max(n for n, _ in true_norms(model)) if isinstance(model, EquilibriumModel) else None
    return Run(
        arm, rate, seed, score >= setup.goal, epoch, spent, wall, score, test, norm, steps
    )  # fmt: skip


@torch.no_grad()
def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Share of samples that are told right."""
    told = torch.cat([model(part).argmax(1) for part in x.split(1000)])
    return float((told == y).double().mean())
