"""Does jobs in parallel processes or elsewhere, resumes, and says what happens as it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
from torch.nn import functional as F

from toreqprop.errors import DataUnavailableError, InvalidInputError, LostWorkError
from toreqprop.evidence.job import Job, Record, Store
from toreqprop.executors import Work
from toreqprop.models import LoopedMLP
from toreqprop.processes import perform_all, tell

J = TypeVar("J", bound=Job)


@dataclass
class Outcome(Generic[J]):
    """The record of every job, in their order; how many were resumed, and which have no
    measurement, with the reason: no data (``absent``) or a killed process (``lost``)."""

    records: dict[J, Record] = field(default_factory=dict)
    reused: int = 0
    absent: dict[J, str] = field(default_factory=dict)
    lost: dict[J, str] = field(default_factory=dict)


class Listener(Generic[J]):
    """What a display may want to know; every method may be left as it is."""

    def planned(self, pending: Sequence[J], reused: int) -> None:
        """Before the first job: those to do, and how many were done by an earlier command."""

    def progress(self, label: str, news: Any) -> None:
        """A running job says where it is."""

    def repeated(self, jobs: Sequence[J]) -> None:
        """A process was killed: these jobs were under way and are done again."""

    def finished(self, job: J, record: Record) -> None:
        """A job is over and, where it measured something, on disk."""


def run_jobs(
    jobs: Sequence[J],
    store: Store,
    processes: int = 1,
    listener: Listener[J] | None = None,
    *,
    fresh: bool = False,
    executor: Executor | str | None = None,
) -> Outcome[J]:
    """The record of every job; ``fresh`` does those again that are on disk already.

    Each job seeds itself and runs on one thread, so neither the number of processes nor the order
    changes a measurement. A record is on disk before it is reported: whatever ends this function,
    also ``kill -9``, the next call goes on from there.

    ``executor`` has the jobs done elsewhere: any `concurrent.futures.Executor`, or the address of a
    dask scheduler. Its workers need the same code, versions and data, which every record's key
    proves, and no common file system: the records are kept here.

    Raises:
        InvalidInputError: a worker has other code, versions or data than this process.
    """
    if processes < 1:
        raise InvalidInputError(f"jobs must be >= 1, got {processes}.")
    run = _Run(store, Listener() if listener is None else listener, Outcome())
    pending: list[J] = []
    for job in jobs:
        found = None if fresh else store.load(job)
        if found is None:
            pending.append(job)
        else:
            run.outcome.records[job] = {**found, "reused": True}
    run.outcome.reused = len(run.outcome.records)
    run.listener.planned(pending, run.outcome.reused)
    pending.sort(key=lambda job: -job.cost)
    if pending:
        warm_up()  # compiled here once: processes that compiled at the same time might round apart
    if executor is None and (processes == 1 or len(pending) < 2):
        run.here(pending)
    elif pending:
        perform_all(
            {job: _work(job, store, fresh, away=executor is not None) for job in pending},
            processes,
            lambda news: run.listener.progress(*news),
            run.over if executor is None else run.arrived,
            prepare=warm_up,
            on_lost=run.listener.repeated,
            executor=executor,
        )
    run.outcome.records = {job: run.outcome.records[job] for job in jobs}
    return run.outcome


@dataclass
class _Run(Generic[J]):
    store: Store
    listener: Listener[J]
    outcome: Outcome[J]

    def here(self, pending: Sequence[J]) -> None:
        """Do the jobs one after the other in this process."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            for job in pending:

                def news(what: Any, label: str = job.label) -> None:
                    self.listener.progress(label, what)

                self._note(job, lambda job=job: keep(job, self.store, news))  # type: ignore[misc]
        finally:
            torch.set_num_threads(threads)

    def over(self, job: J, future: Future[Record]) -> None:
        """A process finished, or lost, this job."""
        self._note(job, future.result)

    def arrived(self, job: J, future: Future[tuple[str, Record]]) -> None:
        """A worker elsewhere finished this job; its record is kept here."""

        def kept() -> Record:
            key, record = future.result()
            if key != job.key:
                raise InvalidInputError(
                    f"A worker did {job.label} with other code, versions or data than are here: "
                    "install the same on every machine."
                )
            return self.store.save(job, record)

        self._note(job, kept)

    def _note(self, job: J, result: Callable[[], Record]) -> None:
        try:
            record = result()
        except DataUnavailableError as error:
            self.outcome.absent[job] = str(error)
            record = job.absent(str(error), lost=False)
        except LostWorkError as error:
            self.outcome.lost[job] = str(error)
            record = job.absent(str(error), lost=True)
        self.outcome.records[job] = record
        self.listener.finished(job, record)


def _work(job: Job, store: Store, fresh: bool, *, away: bool) -> Work:
    return (perform_for, (job,)) if away else (perform_and_keep, (job, store, fresh))


def keep(job: Job, store: Store, report: Callable[[Any], None]) -> Record:
    """Do a job and put its record on disk."""
    return store.save(job, job.perform(report))


def perform_and_keep(job: Job, store: Store, fresh: bool) -> Record:
    """The same in a process of its own, which may be the second one for this job."""
    found = None if fresh else store.load(job)
    return found if found is not None else keep(job, store, lambda news: tell((job.label, news)))


def perform_for(job: Job) -> tuple[str, Record]:
    """The same for another machine: the key as it is here, and the record, which is kept there."""
    return job.key, job.perform(lambda news: tell((job.label, news)))


def warm_up() -> None:
    """One step of a tiny model, so that compilation is not counted as training time."""
    model = LoopedMLP(2, 2, 2)
    F.cross_entropy(model(torch.zeros(2, 2)), torch.tensor([0, 1])).backward()
