"""Processor time of whole trainings until networks know a held-out part of the training images.

A rate that falls to zero learns in a few epochs what a constant one never does, so a training has a
length that is known beforehand: every seed gets longer ones until one reaches the goal, and what
counts is the time of that one. The training images are split once per seed; the test set is looked
at after training alone, and chooses nothing. Every arm gets the same small search over rates and
decays, on seeds of its own: what one seed prefers is chance.

What settles are two layers with weak feedback, next to plain networks of one and of two layers as
wide. Where compiled steps multiply faster than PyTorch, with which plain networks multiply, the
same network with PyTorch's products is an arm of its own, with the same rate and decay: what
differs between the two is rounding, which alone may move a training to another length. So what an
epoch takes is told too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from toreqprop.bench.arms import FeedForward, certificate
from toreqprop.bench.speed_rows import enlarge, true_norms
from toreqprop.energies.tight_ball import MARGIN
from toreqprop.kernels import has_wide_products, pytorch_products
from toreqprop.models import EquilibriumModel, HopfieldMLP, LoopedMLP
from toreqprop.tasks import get
from toreqprop.training import TrainingConfig, fit, predict

OURS, ONE, TWO = "TorEqProp", "one hidden layer", "two hidden layers"
LOOPED = "TorEqProp, looped"
SAME_PRODUCTS = "TorEqProp, PyTorch's products"
ARMS = (OURS, *((SAME_PRODUCTS,) if has_wide_products() else ()), ONE, TWO)
CERTIFIED = 64
"""Training samples that certificates are made of."""

LOOPED_TOL = 1e-2
"""That of the looped network, whose steps are timed in one and in two processes."""


@dataclass(frozen=True)
class Setup:
    """What is trained: the same on every side but for rate and decay, which are searched for among
    ``candidates`` with trainings of ``searched`` epochs. ``gain`` is that of the readouts, and
    ``width`` that of every layer."""

    task: str = "mnist"
    full: bool = True
    goal: float = 0.98
    width: int = 256
    feedback: float = 0.1
    norm: float = 0.95
    tol: float = 0.1
    gain: float = 3.0
    batch: int = 128
    held_out: int = 10_000
    lengths: tuple[int, ...] = (5, 6, 7, 8, 10, 12, 16)
    candidates: tuple[tuple[float, float], ...] = ((1.2e-3, 0.3), (2.4e-3, 0.3), (2.4e-3, 0.06))
    searched: int = 5
    search_seeds: tuple[int, ...] = (1, 2, 3)
    seeds: tuple[int, ...] = (42, 43, 44, 45, 46)


@dataclass(frozen=True)
class Run:
    """One training: ``seconds`` is processor time of the training alone; accuracies are those at
    its end; norm, steps and the certificates before and after are of an equilibrium network."""

    arm: str
    rate: float
    decay: float
    seed: int
    reached: bool
    epochs: int
    seconds: float
    wall_seconds: float
    validation: float
    test: float | None
    norm: float | None = None
    steps: dict[str, float] | None = None
    certificates: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Study:
    """The search and, of every seed and arm, the trainings up to the one that reached the goal."""

    setup: Setup
    search: tuple[Run, ...]
    runs: tuple[Run, ...]

    def seconds(self, arm: str) -> float | None:
        """Mean processor time of what reached the goal; None where a seed has no such training."""
        times = [r.seconds for r in self.runs if r.arm == arm and r.reached]
        return sum(times) / len(times) if len(times) == len(self.setup.seeds) else None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        means = {arm: self.seconds(arm) for arm in ARMS}
        ours = means[OURS]
        ratios = {a: None if ours is None or s is None else ours / s for a, s in means.items()}
        same, two = means.get(SAME_PRODUCTS), means[TWO]
        known = same is not None and two is not None
        return {
            **asdict(self), "mean_seconds": means, "ratio": ratios,
            "same_products": same / two if known else None,  # type: ignore[operator]
            "epoch_seconds": {arm: self.epoch_seconds(arm) for arm in ARMS},
        }  # fmt: skip

    def epoch_seconds(self, arm: str) -> float:
        """Mean processor time of an epoch, over all trainings of the arm."""
        own = [r for r in self.runs if r.arm == arm]
        return sum(r.seconds for r in own) / max(sum(r.epochs for r in own), 1)


def study(setup: Setup, on_run: Callable[[str], None] = lambda line: None) -> Study:
    """Search, then every seed: arm after arm at each length, so that a busy machine slows all."""
    tried = [
        train(setup, arm, setup.searched, seed, candidate, on_run)
        for candidate in setup.candidates
        for seed in setup.search_seeds
        for arm in ARMS
        if arm != SAME_PRODUCTS
    ]
    chosen = {arm: best_of(setup, OURS if arm == SAME_PRODUCTS else arm, tried) for arm in ARMS}
    runs: list[Run] = []
    for seed in setup.seeds:
        for length in setup.lengths:
            there = {r.arm for r in runs if r.seed == seed and r.reached}
            runs += [
                train(setup, arm, length, seed, chosen[arm], on_run, scored=True)
                for arm in ARMS
                if arm not in there
            ]  # fmt: skip
    return Study(setup, tuple(tried), tuple(runs))


def best_of(setup: Setup, arm: str, tried: Sequence[Run]) -> tuple[float, float]:
    """Rate and decay with which the arm knew most, on average over the seeds of the search."""

    def known(candidate: tuple[float, float]) -> float:
        return sum(r.validation for r in tried if r.arm == arm and (r.rate, r.decay) == candidate)

    return max(setup.candidates, key=known)


def model_of(setup: Setup, arm: str, inputs: int, classes: int) -> nn.Module:
    """The arm's network; couplings may reach the stated norm and not exceed it."""
    radius = setup.norm * MARGIN
    if arm == LOOPED:
        return LoopedMLP(inputs, setup.width, classes, radius=radius, bound="tight", tol=LOOPED_TOL)
    if arm in (OURS, SAME_PRODUCTS):
        return HopfieldMLP(
            [inputs, setup.width, setup.width, classes], radius=radius, bound="tight",
            feedback=setup.feedback, tol=setup.tol, gain=setup.gain,
        )  # fmt: skip
    return FeedForward(inputs, setup.width, classes, layers=1 if arm == ONE else 2, gain=setup.gain)


def at_its_norm(setup: Setup, arm: str, inputs: int, classes: int) -> nn.Module:
    """The same, with a coupling that has the stated norm from the start."""
    model = model_of(setup, arm, inputs, classes)
    if isinstance(model, EquilibriumModel):
        enlarge(model)
    return model


def train(
    setup: Setup,
    arm: str,
    epochs: int,
    seed: int,
    candidate: tuple[float, float],
    on_run: Callable[[str], None] = lambda line: None,
    *,
    scored: bool = False,
) -> Run:
    """One training of so many epochs; ``scored`` looks at the test set afterwards."""
    rate, decay = candidate
    data = get(setup.task).load(seed, setup.full)
    x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    held, rows = order[: setup.held_out], order[setup.held_out :]
    torch.manual_seed(seed)
    model = model_of(setup, arm, x.shape[1], data.classes)
    config = TrainingConfig(
        epochs=epochs, batch_size=setup.batch, learning_rate=rate, weight_decay=decay,
        schedule="cosine", optimizer="adamw", seed=seed,
    )  # fmt: skip
    settles = isinstance(model, EquilibriumModel)
    own, labels = x[rows], y[rows]
    few = own[:CERTIFIED], labels[:CERTIFIED]
    proofs = [certificate(model, *few)] if settles else []
    with pytorch_products() if arm == SAME_PRODUCTS else nullcontext():
        wall, spent = time.perf_counter(), time.process_time()
        history = fit(model, own, labels, config)
        spent, wall = time.process_time() - spent, time.perf_counter() - wall
    if settles:
        proofs.append(certificate(model, *few))
    score = _share(model, x[held], y[held])
    on_run(f"{arm}, rate {rate:g}, decay {decay:g}, seed {seed}, {epochs} epochs: {score:.2%}")
    test = None
    if scored:
        test = _share(model, torch.from_numpy(data.test_x), torch.from_numpy(data.test_y))
    last = history.epochs[-1]
    norm = max(n for n, _ in true_norms(model)) if isinstance(model, EquilibriumModel) else None
    steps = {"free": last.free_steps or 0.0, "nudged": last.nudged_steps or 0.0}
    return Run(
        arm, rate, decay, seed, score >= setup.goal, epochs, spent, wall, score, test, norm,
        steps if settles else None, tuple(proofs),
    )  # fmt: skip


def _share(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Share of samples that are told right."""
    return float((predict(model, x) == y).double().mean())
