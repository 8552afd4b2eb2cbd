"""Fit and evaluate: one loop for every model, the same for EP and for backpropagation."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop import checks
from toreqprop.data_parallel import ALONE, Group
from toreqprop.errors import ConvergenceWarning, InvalidInputError
from toreqprop.models import EquilibriumModel
from toreqprop.private_generator import noise_from
from toreqprop.solution import Solution
from toreqprop.trainer_state import TrainerState, restore

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
            checks.whole_number(name, getattr(self, name), 1)
        checks.number("learning_rate", self.learning_rate, 0, above=True, typical="1e-3")
        checks.number("weight_decay", self.weight_decay, 0, typical="0 to 0.1")
        checks.choice("schedule", self.schedule, ("constant", "cosine"))
        checks.choice("optimizer", self.optimizer, ("adam", "adamw"))
        checks.whole_number("seed", self.seed, 0, 2**64 - 1)


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
    relaxations: int | None = None
    failures: dict[str, int] | None = None
    """How many relaxations did not converge, by phase, status and layer."""


@dataclass
class History:
    """The epochs of one training run; ``seconds`` counts training alone, no evaluation."""

    epochs: list[Epoch] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return sum(e.seconds for e in self.epochs)

    @property
    def unconverged(self) -> int:
        """How many relaxations did not converge, over all epochs."""
        return sum(e.unconverged or 0 for e in self.epochs)

    def failure_report(self) -> str:
        """One sentence: how many relaxations did not converge, and where."""
        total = sum(e.relaxations or 0 for e in self.epochs)
        where: Counter[str] = Counter()
        for epoch in self.epochs:
            where.update(epoch.failures or {})
        parts = ", ".join(f"{place}: {count}" for place, count in where.most_common())
        return f"{self.unconverged} of {total} relaxations did not converge ({parts})."

    def as_rows(self) -> list[dict[str, Any]]:
        """Plain data for JSON."""
        return [asdict(e) for e in self.epochs]


@dataclass
class RelaxationMonitor:
    """Counts what a model's relaxations did, through its relaxation hook."""

    steps: dict[str, list[int]] = field(default_factory=dict)
    worst_residual: float = 0.0
    unconverged: int = 0
    failures: Counter[str] = field(default_factory=Counter)

    def __call__(self, phase: str, solution: Solution) -> None:
        self.steps.setdefault(phase, []).append(solution.steps)
        self.worst_residual = max(self.worst_residual, solution.worst_residual)
        if not solution.converged:
            self.unconverged += 1
            layer = "" if solution.layer is None else f", layer {solution.layer}"
            self.failures[f"{phase} phase{layer}, {solution.status.name}"] += 1

    def mean_steps(self, phase: str) -> float | None:
        """Mean evaluations of one relaxation of this phase, None where there was none."""
        checks.choice("phase", phase, ("free", "nudged", "adjoint"))
        counts = self.steps.get(phase)
        return sum(counts) / len(counts) if counts else None


def minibatches(count: int, batch_size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Index batches of one shuffled epoch; the order depends on the generator alone."""
    checks.whole_number("count", count, 1)
    checks.whole_number("batch_size", batch_size, 1)
    checks.generator("generator", generator)
    yield from torch.randperm(count, generator=generator).split(batch_size)


def fit(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    config: TrainingConfig,
    *,
    loss: Loss = F.cross_entropy,
    validation: tuple[Tensor, Tensor] | None = None,
    on_epoch: Callable[[Epoch], bool | None] | None = None,
    on_step: Callable[[nn.Module], None] | None = None,
    on_checkpoint: Callable[[TrainerState], None] | None = None,
    resume: TrainerState | None = None,
    watch_lipschitz: bool = False,
    group: Group = ALONE,
) -> History:
    """Train ``model`` in place and return what each epoch measured.

    ``validation`` is evaluated after every epoch; ``on_step`` runs after every optimizer step,
    outside the clock; ``watch_lipschitz`` records the exact Lipschitz constant of an equilibrium
    model at every step, its largest value per epoch. Where ``on_epoch`` returns True, that epoch is
    the last. ``on_checkpoint`` gets the state after every
    epoch; handed back as ``resume``, to a model with the weights of that moment, training goes on
    as if it had never stopped. The state shares its tensors with the optimizer: copy or save them
    at once.

    The processes of a ``group`` call this together, with equal models and data; each relaxes its
    share of every batch, the optimizer of each takes the whole batch's gradient, and the leading
    one's ``on_epoch`` decides for all. ``loss`` has to be a mean over samples then.

    Raises:
        InvalidInputError: an argument cannot be used, or ``resume`` belongs to other settings.
    """
    _check(model, x, y, config, validation, resume)
    for name, call in (
        ("on_epoch", on_epoch),
        ("on_step", on_step),
        ("on_checkpoint", on_checkpoint),
    ):
        checks.function(name, call, optional=True)
    checks.function("loss", loss)
    checks.instance("group", group, Group, "use that of toreqprop.data_parallel.joined()")
    generator = torch.Generator().manual_seed(config.seed)
    noise = torch.Generator().manual_seed(config.seed)
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
        restore(resume, optimizer, scheduler, generator, noise)
    history, first = History(), True
    for number in range(1 if resume is None else resume.epoch + 1, config.epochs + 1):
        model.train()
        with _monitored(model) as monitor, noise_from(noise):
            peak, losses, seconds = 0.0, 0.0, 0.0
            for batch in minibatches(len(x), config.batch_size, generator):
                started = time.perf_counter()
                optimizer.zero_grad()
                rows, part = group.share(batch)
                output = model(x[rows])
                if first:
                    _check_output(output, y, loss)
                value = loss(output, y[rows])
                if first:
                    checks.scalar_loss(value)
                    first = False
                (value if group.size == 1 else part * value).backward()
                group.sum_gradients(model)
                optimizer.step()
                if scheduler is not None:
                    scheduler.step()
                seconds += time.perf_counter() - started
                losses += float(value.detach()) * part * len(batch)
                if watch_lipschitz and _relaxes(model):
                    peak = max(peak, model.lipschitz())
                if on_step is not None:
                    on_step(model)
        epoch = Epoch(number, group.summed(losses) / len(x), seconds)
        if _relaxes(model):
            epoch.free_steps = monitor.mean_steps("free")
            epoch.nudged_steps = monitor.mean_steps("nudged")
            epoch.worst_residual = monitor.worst_residual
            epoch.unconverged = round(group.summed(monitor.unconverged))
            epoch.relaxations = round(group.summed(sum(map(len, monitor.steps.values()))))
            epoch.failures = dict(monitor.failures)
            epoch.lipschitz = peak if watch_lipschitz else None
        if validation is not None:
            epoch.accuracy = accuracy(model, *validation)
        history.epochs.append(epoch)
        ended = group.told(on_epoch is not None and on_epoch(epoch) is True)
        if on_checkpoint is not None:
            on_checkpoint(
                TrainerState(
                    number,
                    optimizer.state_dict(),
                    None if scheduler is None else scheduler.state_dict(),
                    generator.get_state(),
                    noise.get_state(),
                )
            )
        if ended:
            break
    if _relaxes(model) and model.on_failure == "warn" and history.unconverged:
        warnings.warn(history.failure_report(), ConvergenceWarning, stacklevel=2)
    return history


def _check(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    config: TrainingConfig,
    validation: tuple[Tensor, Tensor] | None,
    resume: TrainerState | None,
) -> None:
    checks.module("model", model)
    if not any(p.requires_grad for p in model.parameters()):
        raise InvalidInputError("The model has no parameter to train: set requires_grad of some.")
    checks.pairs(x, y)
    if len(x) == 0:
        raise InvalidInputError("There is nothing to train on: the training set is empty.")
    checks.instance("config", config, TrainingConfig, "use TrainingConfig(epochs=30)")
    if resume is not None:
        checks.instance("resume", resume, TrainerState, "use what on_checkpoint was given")
    if validation is not None:
        if not isinstance(validation, tuple | list) or len(validation) != 2:
            raise InvalidInputError("validation must be a pair of tensors: use (x, y).")
        checks.pairs(*validation, names=("validation x", "validation y"))


def _check_output(output: Tensor, y: Tensor, loss: Loss) -> None:
    """Refuse, at the first batch, labels that the outputs have no place for."""
    if loss is not F.cross_entropy or y.is_floating_point():
        return
    if y.dtype != torch.int64:
        raise InvalidInputError(f"y must be int64, got {y.dtype}: use y.long().")
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= output.shape[-1]:
        raise InvalidInputError(
            f"y has labels from {low} to {high} and the model has {output.shape[-1]} outputs: "
            "number the classes from 0, and give the model an output for each."
        )


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
    checks.module("model", model)
    checks.tensor("x", x)
    checks.whole_number("batch_size", batch_size, 1)
    training = model.training
    model.eval()
    try:
        return torch.cat([model(part).argmax(-1) for part in x.split(batch_size)])
    finally:
        model.train(training)


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Fraction of samples (or positions) classified correctly."""
    checks.pairs(x, y)
    return float((predict(model, x) == y).double().mean())


def _relaxes(model: nn.Module) -> TypeGuard[EquilibriumModel]:
    return isinstance(model, EquilibriumModel)
