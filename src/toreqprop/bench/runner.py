"""Executes runs in parallel processes, takes up finished ones, and says what happens as it does."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional as F

from toreqprop.bench.rows import task_of
from toreqprop.bench.run import Run, execute
from toreqprop.bench.store import Store
from toreqprop.errors import DataUnavailableError, InvalidInputError, LostWorkError
from toreqprop.models import LoopedMLP
from toreqprop.processes import perform_all, tell
from toreqprop.training import Epoch


@dataclass(frozen=True)
class Progress:
    """One epoch of one run is over; ``accuracy`` is on the test data."""

    label: str
    epoch: int
    accuracy: float


@dataclass
class Outcome:
    """Measurements by run, the reason of every task that could not run, and of every run that was
    begun and not finished."""

    measurements: dict[Run, dict[str, Any]] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)
    lost: dict[Run, str] = field(default_factory=dict)
    reused: int = 0


class Listener:
    """What a display may want to know; every method may be left as it is."""

    def planned(self, pending: Sequence[Run], reused: int) -> None:
        """Before the first run: those to do, and how many were taken from an earlier command."""

    def skipped(self, task: str, reason: str) -> None:
        """A task's data cannot be had."""

    def repeated(self, runs: Sequence[Run]) -> None:
        """A process was killed: these runs were under way and are done again."""

    def lost(self, run: Run, reason: str) -> None:
        """A run was killed twice and is given up."""

    def progress(self, event: Progress) -> None:
        """An epoch is over."""

    def finished(self, run: Run, measurement: dict[str, Any]) -> None:
        """A run is over and on disk."""


def run_all(
    runs: Sequence[Run], store: Store, jobs: int, listener: Listener | None = None
) -> Outcome:
    """Execute the runs that ``store`` does not hold yet, ``jobs`` at a time.

    Each run has a single-threaded process to itself and seeds of its own, so neither the number of
    jobs nor their order changes a measurement. The process that executed a run writes it to
    ``store`` before it reports it.
    """
    if jobs < 1:
        raise InvalidInputError(f"jobs must be >= 1, got {jobs}.")
    listener = Listener() if listener is None else listener
    outcome = Outcome()
    pending = []
    for run in runs:
        found = store.load(run)
        if found is None:
            pending.append(run)
        else:
            outcome.measurements[run] = found
    outcome.reused = len(outcome.measurements)
    for name, reason in unavailable(pending).items():
        outcome.not_run[name] = reason
        listener.skipped(name, reason)
    pending = [run for run in pending if run.task not in outcome.not_run]
    listener.planned(pending, outcome.reused)
    if pending:
        _execute(pending, store, jobs, listener, outcome)
    return outcome


def unavailable(runs: Sequence[Run]) -> dict[str, str]:
    """Tasks whose data cannot be had, with the reason; asked once, before any process starts."""
    reasons: dict[str, str] = {}
    seen: set[str] = set()
    for run in runs:
        if run.task in seen:
            continue
        seen.add(run.task)
        try:
            task_of(run.task).load(run.seed, run.full)
        except DataUnavailableError as error:
            reasons[run.task] = str(error)
    return reasons


def _execute(
    pending: Sequence[Run], store: Store, jobs: int, listener: Listener, outcome: Outcome
) -> None:
    def done(run: Run, future: Future[dict[str, Any]]) -> None:
        try:
            outcome.measurements[run] = future.result()
        except DataUnavailableError as error:  # it was there a moment ago
            outcome.not_run[run.task] = str(error)
            listener.skipped(run.task, str(error))
        except LostWorkError as error:
            outcome.lost[run] = str(error)
            listener.lost(run, str(error))
        else:
            listener.finished(run, outcome.measurements[run])

    warm_up()  # compiled here once: processes that compiled at the same time might round apart
    work = {run: (_run_in_worker, (run, store)) for run in longest_first(pending)}
    perform_all(work, jobs, listener.progress, done, prepare=warm_up, on_lost=listener.repeated)


def longest_first(runs: Sequence[Run]) -> list[Run]:
    """Long runs before short ones, so that no process is left alone with a long one."""

    def cost(run: Run) -> float:
        return run.settings.epochs * run.settings.hidden * (4 if run.model == "ep" else 1)

    order = {name: i for i, name in enumerate(dict.fromkeys(run.task for run in runs))}
    return sorted(runs, key=lambda run: (-cost(run), order[run.task], run.seed))


def warm_up() -> None:
    """One step of a tiny model, so that compilation is not counted as training time."""
    model = LoopedMLP(2, 2, 2)
    F.cross_entropy(model(torch.zeros(2, 2)), torch.tensor([0, 1])).backward()


def _run_in_worker(run: Run, store: Store) -> dict[str, Any]:
    def on_epoch(epoch: Epoch) -> None:
        if epoch.accuracy is not None:
            tell(Progress(run.label, epoch.epoch, epoch.accuracy))

    measurement = store.load(run)  # there if this is a second try, and the first came to the end
    if measurement is None:
        measurement = execute(run, on_epoch)
        store.save(run, measurement)
    return measurement
