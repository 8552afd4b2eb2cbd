"""The transformers that Track 14 trains, all in the same way, and how well they do."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from toreqprop.bench.sequences import SYMBOLS, TEST, token_loss
from toreqprop.gradients import GradientEstimator, VectorFieldEP
from toreqprop.models import EquilibriumTransformer
from toreqprop.tasks.sequences import Sequences, sequences
from toreqprop.training import History, RelaxationMonitor, TrainingConfig, fit, predict
from toreqprop.verify.faults import WrongSign
from toreqprop.verify.measurements import Accuracy, Column
from toreqprop.verify.track import Context


@dataclass(frozen=True)
class Recipe:
    """A model, its task, and how long it is trained; chosen on validation sequences."""

    options: dict[str, Any]
    steps: int
    task: str = "reversal"
    length: int = 8
    batch: int = 64
    learning_rate: float = 1e-2


@dataclass(frozen=True)
class Run:
    """A trained model, its answers on held-out sequences, and what the training took."""

    model: EquilibriumTransformer
    correct: int
    total: int
    chance: float
    seconds: float
    relaxations: int
    history: History = field(repr=False)

    def accuracy(self, *, contrast: bool = False) -> Accuracy:
        return Accuracy((self.correct,), (self.total,), self.chance, contrast)

    @property
    def percent(self) -> float:
        return 100 * self.correct / self.total

    @property
    def unconverged(self) -> int:
        return sum(e.unconverged or 0 for e in self.history.epochs)

    @property
    def row(self) -> tuple[Any, ...]:
        """The cells under `RUN_COLUMNS`."""
        last = self.history.epochs[-1]
        steps = ("–" if s is None else s for s in (last.free_steps, last.nudged_steps))
        return self.percent, *steps, self.unconverged


RUN_COLUMNS = (
    Column("token accuracy, %", ".3f"),
    Column("free steps", ".1f"),
    Column("nudged steps", ".1f"),
    Column("relaxations that did not converge", "d"),
)


def draw(context: Context, recipe: Recipe, seed: int) -> Sequences:
    """Fresh training sequences, each used once, and held-out ones."""
    count = recipe.steps * recipe.batch
    data = sequences(
        recipe.task, length=recipe.length, symbols=SYMBOLS, train=count, test=TEST, seed=seed
    )
    if context.sabotaged("shuffled targets"):
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
        return replace(data, y=data.y[order])
    return data


def build(context: Context, recipe: Recipe, seed: int) -> EquilibriumTransformer:
    """An untrained model, with the fault of the context."""
    torch.manual_seed(seed)
    model = EquilibriumTransformer(SYMBOLS, recipe.length, on_failure="ignore", **recipe.options)
    if context.sabotaged("wrong sign"):
        model.gradient = WrongSign(model.gradient)
    if context.sabotaged("correction dropped") and isinstance(model.gradient, VectorFieldEP):
        model.gradient = replace(model.gradient, correction=False)
    return model


def train(
    context: Context,
    recipe: Recipe,
    seed: int,
    *,
    gradient: GradientEstimator | None = None,
    readout_only: bool = False,
) -> Run:
    """Fit and test; by the model's own EP unless another gradient is given."""
    data, model = draw(context, recipe, seed), build(context, recipe, seed)
    if gradient is not None:
        model.gradient = gradient
    if readout_only:
        for name, p in model.named_parameters():
            p.requires_grad_(name.startswith("readout"))
    config = TrainingConfig(1, recipe.batch, recipe.learning_rate, schedule="cosine", seed=seed)
    monitor = RelaxationMonitor()
    key = model.register_relaxation_hook(monitor)
    started = time.process_time()
    history = fit(model, data.x, data.y, config, loss=token_loss)
    seconds = time.process_time() - started
    model.remove_relaxation_hook(key)
    relaxations = sum(len(steps) for steps in monitor.steps.values())
    correct = int((predict(model, data.test_x) == data.test_y).sum())
    return Run(model, correct, data.test_y.numel(), data.chance, seconds, relaxations, history)
