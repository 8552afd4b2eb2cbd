"""Searches the settings of a row's arms on training data alone, with the same budget for each.

A first round searches every arm by itself, beginning with one point for all and with what the row
used before; in a second every arm tries what was best for the others, so that none is ahead by the
luck of the draw. EP's nudge and tolerance are searched with the rest.

The test set of a task is the same for every seed and no training set holds a row of it, so nothing
here can have seen it. A trial of EP counts only if its certificates pass, before, in the middle of
and after training, at its own β and tolerance and on every split, and with room to spare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from toreqprop.bench.arms import certificate
from toreqprop.bench.hyperparameters import searched, starting
from toreqprop.bench.rows import Row
from toreqprop.bench.run import CERTIFIED, Run, build
from toreqprop.bench.settings import ModelName, ModelSettings, TaskSettings
from toreqprop.bench.shared_search import shared_trials
from toreqprop.errors import InvalidInputError
from toreqprop.tasks import Dataset, get
from toreqprop.training import Epoch, accuracy, fit

VALIDATION_SEED = 1000
"""Far from the seeds of the benchmark: other splits, other initial weights."""

HELD_OUT = 5_000
FRACTION = 0.2
TRAINING_IMAGES, DRAWN = 60_000, 5_000

MIN_COSINE, MAX_NORM_ERROR = 0.995, 0.025
"""What the certificates of a trial must reach: half the error that a certificate allows, as other
seeds of the same row must pass too."""

REFUSED = -100.0
"""Added to the score of a trial whose certificates fail: it loses to every other one."""

SPACE: dict[str, Any] = {
    "learning_rate": {"low": 5e-4, "high": 3e-2, "log": True},
    "weight_decay": {"low": 1e-2, "high": 1.0, "log": True},
    "gain": {"low": 1.0, "high": 10.0, "log": True},
    "beta": {"low": 3e-4, "high": 3e-2, "log": True},
    "tol": {"low": 1e-5, "high": 1e-3, "log": True},
}
"""What is searched; the rate falls as a cosine. All of it is drawn for every arm, so that all arms
try the same points to begin with; what an arm does not have is dropped."""

EP_ALONE = ("beta", "tol")


@dataclass(frozen=True)
class Budget:
    """What each arm of a row may spend; ``splits`` None leaves it to the row."""

    trials: int = 12
    splits: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("trials", "splits"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidInputError(f"{name} must be >= 1, got {value}.")

    def splits_of(self, of: Row) -> int:
        """Validation splits a trial of this row is scored on."""
        return of.splits if self.splits is None else self.splits


@dataclass(frozen=True)
class Trial:
    """One choice of settings, its accuracy (%) on each validation split, and for EP whether every
    certificate passed, with the smallest cosine and the worst ratio of norms among them."""

    settings: ModelSettings
    accuracies: tuple[float, ...]
    certified: bool = True
    cosine: float | None = None
    norm_error: float | None = None

    @property
    def mean(self) -> float:
        return float(np.mean(self.accuracies))

    @property
    def score(self) -> float:
        """What the search maximises."""
        return self.mean if self.certified else self.mean + REFUSED


def validation_split(of: Row, seed: int) -> Dataset:
    """Training data cut in two; the part to validate on is its ``test``.

    The image tasks draw their training images from 60,000: here they are validated on 5,000 of
    those not drawn. Elsewhere a fifth of the training data is held out.
    """
    known = get(of.task)
    if not known.needs:
        return known.load(seed, False).validation(FRACTION, seed)
    everything = known.load(seed, True)
    held = HELD_OUT / len(everything.train_y) if of.all_images else 1 - DRAWN / TRAINING_IMAGES
    split = everything.validation(held, seed)
    return replace(split, test_x=split.test_x[:HELD_OUT], test_y=split.test_y[:HELD_OUT])


def describe_validation(of: Row, splits: int) -> str:
    """How trials are judged, in words."""
    many = f"{splits} split{'s' if splits > 1 else ''}"
    if not get(of.task).needs:
        return f"{FRACTION:.0%} of the training data, {many}"
    return f"{HELD_OUT:,} training images that are not trained on, {many}"


def search(
    of: Row,
    arm: ModelName,
    budget: Budget,
    *,
    before: ModelSettings | None = None,
    points: Sequence[ModelSettings] | None = None,
    on_trial: Callable[[int, Trial], None] | None = None,
    storage: str | None = None,
) -> list[Trial]:
    """Try ``budget.trials`` settings of an arm by Optuna's TPE, or just ``points`` where given.

    The first trials are the common beginning and, where there is one, what was used ``before``.
    With ``storage``, the address of a database, other processes may do a part of the trials
    (`toreqprop.bench.shared_search`).

    Raises:
        InvalidInputError: Optuna is not installed, or the address is no database's.
    """
    optuna = _optuna()
    given = trained_shorter(starting(of), of)
    seeds = range(VALIDATION_SEED, VALIDATION_SEED + budget.splits_of(of))
    splits = {seed: validation_split(of, seed) for seed in seeds}
    trials: list[Trial] = []

    def attempt(asked: Any) -> Trial:
        chosen = suggest(asked, of, arm)
        entry = replace(given, **{arm: chosen})  # type: ignore[arg-type]
        parts = [
            _validate(Run(of.name, arm, seed, entry, of.all_images), data)
            for seed, data in splits.items()
        ]
        trials.append(_trial(chosen, parts))
        if on_trial is not None:
            on_trial(len(trials), trials[-1])
        return trials[-1]

    known = [given.model(arm), *([] if before is None else [before])]
    starts = [nearest(point, given.ep) for point in (known if points is None else points)]
    if storage is not None and points is None:
        name = f"{of.name}, {arm}, {budget.trials} trials, {len(splits)} splits, {budget.seed}"

        def shared(asked: Any) -> tuple[float, dict[str, Any]]:
            tried = attempt(asked)
            return tried.score, asdict(tried)

        found = shared_trials(optuna, storage, name, budget.trials, budget.seed, starts, shared)
        return [trial_of(plain) for plain in found]

    sampler = optuna.samplers.TPESampler(seed=budget.seed, n_startup_trials=5)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for start in starts:
        study.enqueue_trial(start)
    study.optimize(
        lambda asked: attempt(asked).score,
        n_trials=budget.trials if points is None else len(points),
    )
    return trials


def trained_shorter(entry: TaskSettings, of: Row) -> TaskSettings:
    """What a trial trains with: the row's settings, for the epochs of its search."""
    return entry if of.search_epochs is None else replace(entry, epochs=of.search_epochs)


def second_round(
    of: Row, found: Mapping[ModelName, Sequence[Trial]]
) -> dict[ModelName, list[ModelSettings]]:
    """What each arm tries once more: the best of every other arm, at the nudge and tolerance of its
    own best."""
    leaders = {arm: max(found[arm], key=lambda trial: trial.score).settings for arm in searched(of)}
    return {
        arm: [
            replace(leader, beta=leaders[arm].beta, tol=leaders[arm].tol)
            for other, leader in leaders.items()
            if other != arm
        ]
        for arm in searched(of)
    }


def domains(of: Row, arm: ModelName) -> tuple[str, ...]:
    """What an arm of a row has of the space: only a looped network's readout has a gain."""
    without = EP_ALONE if arm != "ep" else () if of.network == "looped" else ("gain",)
    return tuple(name for name in SPACE if name not in without)


def nearest(chosen: ModelSettings, rest: ModelSettings) -> dict[str, Any]:
    """The point of the search space nearest to some settings; ``rest`` has what they lack."""
    found = _plain(rest) | _plain(chosen)
    return {name: min(max(found[name], d["low"]), d["high"]) for name, d in SPACE.items()}


def suggest(asked: Any, of: Row, arm: ModelName) -> ModelSettings:
    """Draw settings; numbers are rounded before they are tried, so that what is written was."""
    drawn = {name: float(f"{asked.suggest_float(name, **d):.2g}") for name, d in SPACE.items()}
    chosen: dict[str, Any] = {name: drawn[name] for name in domains(of, arm)}
    return ModelSettings(**chosen)


def best(trials: list[Trial]) -> Trial:
    """The first trial of the highest score.

    Raises:
        InvalidInputError: no trial's certificates passed.
    """
    found = max(trials, key=lambda trial: trial.score)
    if not found.certified:
        raise InvalidInputError(
            "No trial passed its certificates: lower the row's radius or tol, or try more."
        )
    return found


def record(
    of: Row, found: dict[ModelName, list[Trial]], budget: Budget, made: dict[str, Any]
) -> dict[str, Any]:
    """A row's entry of the file: the best settings and the whole search behind them."""
    log: dict[str, Any] = {
        "trials": budget.trials,
        "epochs": trained_shorter(starting(of), of).epochs,
        "validation": describe_validation(of, budget.splits_of(of)),
        "validation_seed": VALIDATION_SEED,
        "sampler": f"Optuna TPE, seed {budget.seed}, after a common beginning and what the row "
        "used before; then the best of the other arms",
        "constraint": f"certificates of EP at cosine >= {MIN_COSINE}, norms within "
        f"{MAX_NORM_ERROR:.1%}, three times in training",
        "space": SPACE,
        "made": made,
    }
    chosen: dict[str, Any] = {}
    for arm in searched(of):
        trials = found[arm]
        chosen[arm] = _plain(best(trials).settings)
        log[arm] = {
            "best": round(best(trials).mean, 3),
            "tried": [_logged(trial) for trial in trials],
        }
    return chosen | {"search": log}


def _logged(trial: Trial) -> dict[str, Any]:
    plain = {**_plain(trial.settings), "accuracies": [round(a, 3) for a in trial.accuracies]}
    if trial.cosine is not None and trial.norm_error is not None:
        plain |= {
            "certified": trial.certified,
            "cosine": round(trial.cosine, 5),
            "norm_error": round(trial.norm_error, 4),
        }
    return plain


def _trial(chosen: ModelSettings, parts: list[tuple[float, list[dict[str, Any]]]]) -> Trial:
    accuracies = tuple(part[0] for part in parts)
    found = [c for part in parts for c in part[1]]
    if not found:
        return Trial(chosen, accuracies)
    error = max(max(1 - c["least_ratio"], c["largest_ratio"] - 1) for c in found)
    return Trial(
        chosen, accuracies, all(c["ok"] for c in found), min(c["cosine"] for c in found), error
    )


def _validate(run: Run, data: Dataset) -> tuple[float, list[dict[str, Any]]]:
    """Accuracy in percent on the validation part, and EP's certificates."""
    torch.manual_seed(run.seed)
    network = build(run, data, run.chosen.model(run.model))
    x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    training = run.chosen.training(run.model, run.seed)
    found: list[dict[str, Any]] = []

    def certified(epoch: int) -> None:
        if run.model == "ep" and epoch in (0, max(1, training.epochs // 2), training.epochs):
            limits = {"min_cosine": MIN_COSINE, "max_norm_error": MAX_NORM_ERROR}
            found.append(certificate(network, x[:CERTIFIED], y[:CERTIFIED], **limits))

    def after(epoch: Epoch) -> None:
        certified(epoch.epoch)

    certified(0)
    fit(network, x, y, training, on_epoch=after)
    test = torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)
    return 100 * accuracy(network, *test), found


def trial_of(plain: Mapping[str, Any]) -> Trial:
    """A trial from its plain data."""
    accuracies, settings = tuple(plain["accuracies"]), ModelSettings(**plain["settings"])
    return Trial(**{**plain, "accuracies": accuracies, "settings": settings})


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
