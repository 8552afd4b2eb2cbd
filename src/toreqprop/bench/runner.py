"""Executes runs in parallel processes, takes up finished ones, and says what happens as it does."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing.queues import Queue
from queue import Empty
from typing import Any

import torch
from torch.nn import functional as F

from toreqprop.bench.rows import task_of
from toreqprop.bench.run import Run, execute
from toreqprop.bench.store import Store
from toreqprop.errors import DataUnavailableError, InvalidInputError
from toreqprop.models import LoopedMLP
from toreqprop.training import Epoch


@dataclass(frozen=True)
class Progress:
    """One epoch of one run is over; ``accuracy`` is on the test data."""

    label: str
    epoch: int
    accuracy: float


@dataclass
class Outcome:
    """Measurements by run, and the reason of every task that could not run."""

    measurements: dict[Run, dict[str, Any]] = field(default_factory=dict)
    not_run: dict[str, str] = field(default_factory=dict)
    reused: int = 0


class Listener:
    """What a display may want to know; every method may be left as it is."""

    def planned(self, pending: Sequence[Run], reused: int) -> None:
        """Before the first run: those to do, and how many were taken from an earlier command."""

    def skipped(self, task: str, reason: str) -> None:
        """A task's data cannot be had."""

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
    warm_up()  # compiled here once: processes that compiled at the same time might round apart
    context = multiprocessing.get_context("spawn")
    events: Queue[Progress] = context.Queue()
    pool = ProcessPoolExecutor(
        min(jobs, len(pending)), context, initializer=_start_worker, initargs=(events,)
    )
    try:
        futures = {pool.submit(_run_in_worker, run, store): run for run in longest_first(pending)}
        waiting: set[Future[dict[str, Any]]] = set(futures)
        while waiting:
            done, waiting = wait(waiting, timeout=0.1, return_when=FIRST_COMPLETED)
            _drain(events, listener.progress)
            for future in done:
                run = futures[future]
                try:
                    outcome.measurements[run] = future.result()
                except DataUnavailableError as error:  # it was there a moment ago
                    outcome.not_run[run.task] = str(error)
                    listener.skipped(run.task, str(error))
                else:
                    listener.finished(run, outcome.measurements[run])
    except BaseException:
        # Results on disk are whole; whatever still computes can be ended at once.
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown(wait=True)


def longest_first(runs: Sequence[Run]) -> list[Run]:
    """Long runs before short ones, so that no process is left alone with a long one."""

    def cost(run: Run) -> float:
        return run.settings.epochs * run.settings.hidden * (4 if run.model == "ep" else 1)

    order = {name: i for i, name in enumerate(dict.fromkeys(run.task for run in runs))}
    return sorted(runs, key=lambda run: (-cost(run), order[run.task], run.seed))


def _drain(events: Queue[Progress], report: Callable[[Progress], None]) -> None:
    while True:
        try:
            report(events.get_nowait())
        except Empty:
            return


_events: Queue[Progress] | None = None


def _start_worker(events: Queue[Progress]) -> None:
    global _events
    _events = events
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    warm_up()


def warm_up() -> None:
    """One step of a tiny model, so that compilation is not counted as training time."""
    model = LoopedMLP(2, 2, 2)
    F.cross_entropy(model(torch.zeros(2, 2)), torch.tensor([0, 1])).backward()


def _end_with_parent() -> None:
    """A killed parent cannot end its workers: they end themselves."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run_in_worker(run: Run, store: Store) -> dict[str, Any]:
    def on_epoch(epoch: Epoch) -> None:
        if _events is not None and epoch.accuracy is not None:
            _events.put(Progress(run.label, epoch.epoch, epoch.accuracy))

    measurement = execute(run, on_epoch)
    store.save(run, measurement)
    return measurement
