"""Fit and evaluate: one loop for every model, the same for EP and for backpropagation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop.errors import InvalidInputError
from toreqprop.models import EquilibriumModel
from toreqprop.solution import Solution

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained: Adam on shuffled minibatches.

    ``weight_decay`` is decoupled from the gradient with ``optimizer="adamw"`` and added to it (L2)
    with ``"adam"``; at zero the two are the same.
    """

    epochs: int = 30
    batch_size: int = 64
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    schedule: Literal["constant", "cosine"] = "constant"
    optimizer: Literal["adam", "adamw"] = "adam"
    seed: int = 42

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise InvalidInputError(f"{name} must be >= 1, got {getattr(self, name)}.")
        if not self.learning_rate > 0:
            raise InvalidInputError(
                f"learning_rate must be > 0, got {self.learning_rate}. Typical: 1e-3."
            )
        if self.schedule not in ("constant", "cosine"):
            raise InvalidInputError(
                f'schedule must be "constant" or "cosine", got {self.schedule!r}.'
            )
        if self.optimizer not in ("adam", "adamw"):
            raise InvalidInputError(f'optimizer must be "adam" or "adamw", got {self.optimizer!r}.')


@dataclass
class Epoch:
    """What one epoch measured; relaxation figures are None for models without a relaxation."""

    epoch: int
    loss: float
    seconds: float
    accuracy: float | None = None
    free_steps: float | None = None
    nudged_steps: float | None = None
    worst_residual: float | None = None
    unconverged: int | None = None
    lipschitz: float | None = None


@dataclass
class History:
    """The epochs of one training run; ``seconds`` counts training alone, no evaluation."""

    epochs: list[Epoch] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return sum(e.seconds for e in self.epochs)

    def as_rows(self) -> list[dict[str, Any]]:
        """Plain data for JSON."""
        return [asdict(e) for e in self.epochs]


@dataclass
class RelaxationMonitor:
    """Counts what a model's relaxations did, through its relaxation hook."""

    steps: dict[str, list[int]] = field(default_factory=dict)
    worst_residual: float = 0.0
    unconverged: int = 0

    def __call__(self, phase: str, solution: Solution) -> None:
        self.steps.setdefault(phase, []).append(solution.steps)
        self.worst_residual = max(self.worst_residual, solution.worst_residual)
        self.unconverged += not solution.converged

    def mean_steps(self, phase: str) -> float | None:
        """Mean evaluations of one relaxation of this phase, None where there was none."""
        counts = self.steps.get(phase)
        return sum(counts) / len(counts) if counts else None


@dataclass(frozen=True)
class TrainerState:
    """What training goes on from after ``epoch``, the model's own tensors apart.

    ``optimizer`` and ``scheduler`` are their state dicts (None without a schedule), ``batches``
    the state of the generator that orders the data, ``noise`` that of torch's global one, which
    random estimators draw from.
    """

    epoch: int
    optimizer: dict[str, Any]
    scheduler: dict[str, Any] | None
    batches: Tensor
    noise: Tensor


def minibatches(count: int, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Index batches of one shuffled epoch; the order depends on the generator alone."""
    yield from torch.randperm(count, generator=generator).split(batch_size)


def fit(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    config: TrainingConfig,
    *,
    loss: Loss = F.cross_entropy,
    validation: tuple[Tensor, Tensor] | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
    on_step: Callable[[nn.Module], None] | None = None,
    on_checkpoint: Callable[[TrainerState], None] | None = None,
    resume: TrainerState | None = None,
    watch_lipschitz: bool = False,
) -> History:
    """Train ``model`` in place and return what each epoch measured.

    ``validation`` is evaluated after every epoch; ``on_step`` runs after every optimizer step,
    outside the clock; ``watch_lipschitz`` records the exact Lipschitz constant of an equilibrium
    model at every step, its largest value per epoch. ``on_checkpoint`` gets the state after every
    epoch; handed back as ``resume``, to a model with the weights of that moment, training goes on
    as if it had never stopped. The state shares its tensors with the optimizer: copy or save them
    at once.
    """
    if len(x) == 0:
        raise InvalidInputError("There is nothing to train on: the training set is empty.")
    generator = torch.Generator().manual_seed(config.seed)
    method = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    optimizer = method(
        model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
    )
    total = config.epochs * -(-len(x) // config.batch_size)
    scheduler = (
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
        if config.schedule == "cosine"
        else None
    )
    if resume is not None:
        _restore(resume, optimizer, scheduler, generator)
    history = History()
    for number in range(1 if resume is None else resume.epoch + 1, config.epochs + 1):
        model.train()
        with _monitored(model) as monitor:
            peak, losses, seconds = 0.0, 0.0, 0.0
            for batch in minibatches(len(x), config.batch_size, generator):
                started = time.perf_counter()
                optimizer.zero_grad()
                value = loss(model(x[batch]), y[batch])
                value.backward()
                optimizer.step()
                if scheduler is not None:
                    scheduler.step()
                seconds += time.perf_counter() - started
                losses += float(value.detach()) * len(batch)
                if watch_lipschitz and _relaxes(model):
                    peak = max(peak, model.lipschitz())
                if on_step is not None:
                    on_step(model)
        epoch = Epoch(number, losses / len(x), seconds)
        if _relaxes(model):
            epoch.free_steps = monitor.mean_steps("free")
            epoch.nudged_steps = monitor.mean_steps("nudged")
            epoch.worst_residual = monitor.worst_residual
            epoch.unconverged = monitor.unconverged
            epoch.lipschitz = peak if watch_lipschitz else None
        if validation is not None:
            epoch.accuracy = accuracy(model, *validation)
        history.epochs.append(epoch)
        if on_epoch is not None:
            on_epoch(epoch)
        if on_checkpoint is not None:
            on_checkpoint(
                TrainerState(
                    number,
                    optimizer.state_dict(),
                    None if scheduler is None else scheduler.state_dict(),
                    generator.get_state(),
                    torch.get_rng_state(),
                )
            )
    return history


def _restore(
    state: TrainerState,
    optimizer: torch.optim.Optimizer,
    scheduler: torch.optim.lr_scheduler.LRScheduler | None,
    generator: torch.Generator,
) -> None:
    if (scheduler is None) != (state.scheduler is None):
        raise InvalidInputError("Go on with the learning-rate schedule training was begun with.")
    optimizer.load_state_dict(state.optimizer)
    if scheduler is not None and state.scheduler is not None:
        scheduler.load_state_dict(state.scheduler)
    generator.set_state(state.batches)
    torch.set_rng_state(state.noise)


@contextmanager
def _monitored(model: nn.Module) -> Iterator[RelaxationMonitor]:
    """Counts the model's relaxations, if it has any, for as long as the block lasts."""
    monitor = RelaxationMonitor()
    if not _relaxes(model):
        yield monitor
        return
    key = model.register_relaxation_hook(monitor)
    try:
        yield monitor
    finally:
        model.remove_relaxation_hook(key)


@torch.no_grad()
def predict(model: nn.Module, x: Tensor, batch_size: int = 1000) -> Tensor:
    """The most likely class of each sample, shape (batch,), or of each position."""
    training = model.training
    model.eval()
    try:
        return torch.cat([model(part).argmax(-1) for part in x.split(batch_size)])
    finally:
        model.train(training)


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Fraction of samples (or positions) classified correctly."""
    return float((predict(model, x) == y).double().mean())


def _relaxes(model: nn.Module) -> TypeGuard[EquilibriumModel]:
    return isinstance(model, EquilibriumModel)
