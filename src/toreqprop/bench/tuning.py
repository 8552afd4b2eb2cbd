"""Searches hyperparameters on training data alone, with the same budget for both models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from toreqprop.bench.hyperparameters import ModelName, ModelSettings, TaskSettings
from toreqprop.bench.rows import FAST, FAST_RADIUS, LAYERED, task_of
from toreqprop.bench.run import Run, build
from toreqprop.errors import InvalidInputError
from toreqprop.tasks import Dataset
from toreqprop.training import accuracy, fit

VALIDATION_SEED = 1000
"""Far from the seeds of the benchmark: other splits, other initial weights."""

HELD_OUT = 10_000
FRACTION = 0.2
TRAINING_IMAGES, DRAWN = 60_000, 5_000

SPACE: dict[str, Any] = {
    "learning_rate": {"low": 1e-3, "high": 5e-2, "log": True},
    "weight_decay": {"low": 1e-2, "high": 3.0, "log": True},
    "schedule": ["cosine"],
    "gain": {"low": 1.0, "high": 30.0, "log": True},
}
"""What is searched for both models. A constant rate is not: it validates well by chance and then
fails on another seed, as its last epoch is as noisy as any."""

EP_SPACE: dict[str, Any] = {
    "beta": {"low": 0.05, "high": 2.0, "log": True},
    "radius": {"low": 0.1, "high": 0.99, "log": False},
}
"""What EP has besides; it gets no more trials for it."""


SHARED = ("hidden", "epochs", "batch_size")
"""What an entry says of both models."""


@dataclass(frozen=True)
class Budget:
    """What both models of a task may spend."""

    trials: int = 12
    splits: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("trials", "splits"):
            if getattr(self, name) < 1:
                raise InvalidInputError(f"{name} must be >= 1, got {getattr(self, name)}.")


@dataclass(frozen=True)
class Trial:
    """One choice of settings and its accuracy (%) on each validation split."""

    settings: ModelSettings
    accuracies: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.accuracies))


def validation_split(task: str, full: bool, seed: int) -> Dataset:
    """Training data cut in two; the part to validate on is its ``test``.

    The image tasks train on 5,000 images drawn from 60,000: here they are validated on up to
    10,000 of those not drawn. Elsewhere a fifth of the training data is held out.
    """
    known = task_of(task)
    if not known.needs:
        return known.load(seed, full).validation(FRACTION, seed)
    everything = known.load(seed, True)
    fraction = HELD_OUT / len(everything.train_y) if full else 1 - DRAWN / TRAINING_IMAGES
    split = everything.validation(fraction, seed)
    return replace(split, test_x=split.test_x[:HELD_OUT], test_y=split.test_y[:HELD_OUT])


def describe_validation(task: str, full: bool, splits: int) -> str:
    """How trials are judged, in words."""
    if not task_of(task).needs:
        return f"{FRACTION:.0%} of the training data, {splits} splits"
    kind = "held-out" if full else "undrawn"
    return f"{HELD_OUT:,} {kind} training images, {splits} split{'s' if splits > 1 else ''}"


def search(
    task: str,
    model: ModelName,
    start: TaskSettings,
    budget: Budget,
    *,
    full: bool = False,
    on_trial: Callable[[int, Trial], None] | None = None,
) -> list[Trial]:
    """Try ``budget.trials`` settings, the first of them ``start``'s; tree-structured Parzen.

    Raises:
        InvalidInputError: Optuna is not installed.
    """
    optuna = _optuna()
    seeds = range(VALIDATION_SEED, VALIDATION_SEED + budget.splits)
    splits = {seed: validation_split(task, full, seed) for seed in seeds}
    trials: list[Trial] = []

    def objective(asked: Any) -> float:
        given = start.model(model)
        chosen = suggest(asked, space(task, model))
        chosen = replace(chosen, layers=given.layers, feedback=given.feedback)
        entry = (
            replace(start, backprop=chosen) if model == "backprop" else replace(start, ep=chosen)
        )
        scores = tuple(_validate(Run(task, model, s, entry, full), d) for s, d in splits.items())
        trials.append(Trial(chosen, scores))
        if on_trial is not None:
            on_trial(len(trials), trials[-1])
        return trials[-1].mean

    sampler = optuna.samplers.TPESampler(seed=budget.seed, n_startup_trials=5)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.enqueue_trial(nearest(start.model(model), space(task, model)))
    study.optimize(objective, n_trials=budget.trials)
    return trials


def space(row: str, model: ModelName) -> dict[str, Any]:
    """What is searched for a model of a row: a layered network's readout has no gain, and where
    speed counts the radius is given."""
    found = SPACE | (EP_SPACE if model == "ep" else {})
    if row in LAYERED:
        found = {name: domain for name, domain in found.items() if name != "gain"}
    if row in FAST and model == "ep":
        found["radius"] = {"low": FAST_RADIUS, "high": FAST_RADIUS}
    return found


def nearest(chosen: ModelSettings, domains: dict[str, Any]) -> dict[str, Any]:
    """The point of the search space nearest to some settings."""
    found = _plain(chosen)
    for name, domain in domains.items():
        if isinstance(domain, list):
            found[name] = found[name] if found[name] in domain else domain[0]
        else:
            found[name] = min(max(found[name], domain["low"]), domain["high"])
    return found


def suggest(asked: Any, domains: dict[str, Any]) -> ModelSettings:
    """Draw settings; numbers are rounded before they are tried, so that what is written was."""
    chosen: dict[str, Any] = {}
    for name, domain in domains.items():
        if isinstance(domain, list):
            chosen[name] = asked.suggest_categorical(name, domain)
        else:
            chosen[name] = float(f"{asked.suggest_float(name, **domain):.2g}")
    return ModelSettings(**chosen)


def best(trials: list[Trial]) -> Trial:
    """The first trial of the highest mean validation accuracy."""
    return max(trials, key=lambda trial: trial.mean)


def record(
    row: str,
    entry: dict[str, Any],
    epochs: int,
    found: dict[ModelName, list[Trial]],
    budget: Budget,
    validation: str,
) -> dict[str, Any]:
    """A row's entry of the hyperparameter file: the best settings and the search behind them."""
    both, ep = space(row, "backprop"), space(row, "ep")
    search_record: dict[str, Any] = {
        "trials": budget.trials,
        "epochs": epochs,
        "validation": validation,
        "validation_seed": VALIDATION_SEED,
        "sampler": f"Optuna TPE, seed {budget.seed}, 5 random trials first",
        "space": both | {f"{name} (EP)": ep[name] for name in ep if name not in both},
    }
    chosen: dict[str, Any] = {}
    for model, trials in found.items():
        chosen[model] = _plain(best(trials).settings)
        search_record[model] = {
            "best": round(best(trials).mean, 3),
            "tried": [
                {**_plain(t.settings), "accuracies": [round(a, 3) for a in t.accuracies]}
                for t in trials
            ],
        }
    shared = {name: entry[name] for name in SHARED if name in entry}
    return shared | chosen | {"search": search_record}


def _validate(run: Run, data: Dataset) -> float:
    torch.manual_seed(run.seed)
    network = build(run, data, run.settings.model(run.model))
    x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    fit(network, x, y, run.settings.training(run.model, run.seed))
    return 100 * accuracy(network, torch.from_numpy(data.test_x), torch.from_numpy(data.test_y))


def _plain(chosen: ModelSettings) -> dict[str, Any]:
    return {name: value for name, value in asdict(chosen).items() if value is not None}


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise InvalidInputError(
            'Tuning needs Optuna: run `pip install "toreqprop[tune]"`.'
        ) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # its warnings are tracebacks
    return optuna
