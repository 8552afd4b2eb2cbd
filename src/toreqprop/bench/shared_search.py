"""One search of several processes, on any machines that reach one database (Optuna's storage).

The database holds every trial with all that `Trial` holds. A process takes the next trial until
there are as many as the budget says, never one more. A trial whose process was killed is repeated
with the same settings by whoever comes next. The k-th trial draws from a generator of its own, so
one process that is stopped and started again tries what it would have tried in one go; of several
at once it depends on their speed which settings are tried, never what a setting scores.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

from toreqprop.errors import InvalidInputError

HEARTBEAT, SILENCE = 10, 60
"""Seconds between two signs of life of a trial, and after which its process counts as killed."""

STORED = "trial"

_RACES = ("IntegrityError", "OperationalError", "ProgrammingError")


def shared_trials(
    optuna: Any,
    url: str,
    name: str,
    trials: int,
    seed: int,
    starts: list[dict[str, Any]],
    attempt: Callable[[Any], tuple[float, dict[str, Any]]],
) -> list[dict[str, Any]]:
    """Do our share of a search and wait for the others' last trials; all of them, by number.

    ``attempt`` draws settings from an Optuna trial and returns the score and plain data to keep;
    ``starts`` are what the first trials try.

    Raises:
        InvalidInputError: the address is no database's.
    """
    states = optuna.trial.TrialState
    study = _study(optuna, url, name, _sampler(optuna, seed, starts))

    def objective(asked: Any) -> float:
        if asked.number not in [t.number for t in counted(optuna, study)[:trials]]:
            raise optuna.TrialPruned  # others were faster: it would be one too many
        score, plain = attempt(asked)
        asked.set_user_attr(STORED, plain)
        return score

    while True:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            optuna.storages.fail_stale_trials(study)
        found = counted(optuna, study)[:trials]
        done = [t for t in found if t.state is states.COMPLETE]
        if len(done) >= trials:
            return [t.user_attrs[STORED] for t in done]
        if len(found) < trials or any(t.state is states.WAITING for t in found):
            try:
                study.optimize(objective, n_trials=1)
            except optuna.exceptions.UpdateFinishedTrialError:
                continue  # we were thought dead, and it was repeated
        else:
            time.sleep(HEARTBEAT / 20)


def counted(optuna: Any, study: Any) -> list[Any]:
    """Trials that are done, under way or to be repeated, by number: failed ones do not count."""
    states = optuna.trial.TrialState
    alive = (states.COMPLETE, states.RUNNING, states.WAITING)
    return [t for t in study.get_trials(deepcopy=False) if t.state in alive]


def _study(optuna: Any, url: str, name: str, sampler: Any) -> Any:
    for left in reversed(range(10)):
        try:
            storage = _storage(optuna, url)
            break
        except Exception as error:  # whatever the driver of the database raises
            # Two processes that make the tables at the same time are in each other's way once.
            if left and type(error).__name__ in _RACES:
                time.sleep(0.1)
                continue
            raise InvalidInputError(
                f"--storage {url} cannot be opened ({type(error).__name__}): give the address of "
                "a database, such as sqlite:///search.db or postgresql://user@host/name."
            ) from None
    return optuna.create_study(
        study_name=name,
        storage=storage,
        sampler=sampler,
        direction="maximize",
        load_if_exists=True,
    )


def _storage(optuna: Any, url: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.storages.RDBStorage(
            url,
            heartbeat_interval=HEARTBEAT,
            grace_period=SILENCE,
            heartbeat_stale_trial_callback=optuna.storages.RetryHeartbeatStaleTrialCallback(),
        )


def _sampler(optuna: Any, seed: int, starts: list[dict[str, Any]]) -> Any:
    class Numbered(optuna.samplers.BaseSampler):  # type: ignore[misc]
        """TPE with a seed of its own for each trial that counts; the first ones are ``starts``."""

        def __init__(self) -> None:
            self._number, self._rank, self._base = -1, -1, None

        def _of(self, study: Any, trial: Any) -> Any:
            if trial.number != self._number:
                known = counted(optuna, study)
                self._number = trial.number
                self._rank = sum(t.number < trial.number for t in known)
                self._base = optuna.samplers.TPESampler(seed=seed + self._rank, n_startup_trials=5)
            return self._base

        def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
            found = self._of(study, trial).infer_relative_search_space(study, trial)
            return found if self._rank >= len(starts) else {}

        def sample_relative(self, study: Any, trial: Any, search_space: Any) -> Any:
            return self._of(study, trial).sample_relative(study, trial, search_space)

        def sample_independent(self, study: Any, trial: Any, name: str, distribution: Any) -> Any:
            base = self._of(study, trial)
            if self._rank < len(starts):
                return starts[self._rank][name]
            return base.sample_independent(study, trial, name, distribution)

    return Numbered()
