"""One search of several processes, on any machines that reach one database (Optuna's storage).

The database holds every trial with all that `Trial` holds. A process takes the next trial until
there are as many as the budget says, never one more. A trial whose process was killed is repeated
with the same settings by whoever comes next. Trial number k draws from a generator of its own, so
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

    def counted() -> list[Any]:
        """Trials that are done, under way or to be repeated, by number."""
        alive = (states.COMPLETE, states.RUNNING, states.WAITING)
        return [t for t in study.get_trials(deepcopy=False) if t.state in alive]

    def objective(asked: Any) -> float:
        if asked.number not in [t.number for t in counted()[:trials]]:
            raise optuna.TrialPruned  # others were faster: it would be one too many
        score, plain = attempt(asked)
        asked.set_user_attr(STORED, plain)
        return score

    while True:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            optuna.storages.fail_stale_trials(study)
        found = counted()[:trials]
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


def _study(optuna: Any, url: str, name: str, sampler: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        try:
            storage = optuna.storages.RDBStorage(
                url,
                heartbeat_interval=HEARTBEAT,
                grace_period=SILENCE,
                heartbeat_stale_trial_callback=optuna.storages.RetryHeartbeatStaleTrialCallback(),
            )
        except Exception as error:  # whatever the driver of the database raises
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


def _sampler(optuna: Any, seed: int, starts: list[dict[str, Any]]) -> Any:
    class Numbered(optuna.samplers.BaseSampler):  # type: ignore[misc]
        """TPE with a seed of its own for every trial number; the first ones try ``starts``."""

        def __init__(self) -> None:
            self._number, self._base = -1, None

        def _of(self, trial: Any) -> Any:
            if trial.number != self._number:
                base = optuna.samplers.TPESampler(seed=seed + trial.number, n_startup_trials=5)
                if trial.number < len(starts):
                    base = optuna.samplers.PartialFixedSampler(starts[trial.number], base)
                self._number, self._base = trial.number, base
            return self._base

        def infer_relative_search_space(self, study: Any, trial: Any) -> Any:
            return self._of(trial).infer_relative_search_space(study, trial)

        def sample_relative(self, study: Any, trial: Any, search_space: Any) -> Any:
            return self._of(trial).sample_relative(study, trial, search_space)

        def sample_independent(self, study: Any, trial: Any, name: str, distribution: Any) -> Any:
            return self._of(trial).sample_independent(study, trial, name, distribution)

    return Numbered()
