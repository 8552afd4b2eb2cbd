"""Runs jobs in parallel processes, takes up finished ones, and reports as it goes."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from toreqprop.errors import InvalidInputError, LostWorkError
from toreqprop.processes import perform_all, tell
from toreqprop.verify.levels import LEVELS
from toreqprop.verify.records import Job, Record, Records, lost, perform
from toreqprop.verify.registry import all_tracks


class Listener:
    """What a display may want to know; every method may be left as it is."""

    def planned(self, pending: Sequence[Job], reused: int) -> None:
        """Before the first job: those to do, and how many were done by an earlier command."""

    def progress(self, label: str, message: str) -> None:
        """A running experiment says where it is."""

    def repeated(self, jobs: Sequence[Job]) -> None:
        """A process was killed: these jobs were under way and are done again."""

    def finished(self, job: Job, record: Record) -> None:
        """A job is over and on disk."""


def run_jobs(
    jobs: Sequence[Job],
    records: Records,
    processes: int = 1,
    listener: Listener | None = None,
    *,
    fresh: bool = False,
) -> dict[Job, Record]:
    """The record of every job; ``fresh`` does those again that are on disk already.

    Each experiment seeds itself and runs on one thread, so neither the number of processes nor the
    order changes a measurement. A job is on disk before it is reported: whatever ends this
    function, also ``kill -9``, the next call goes on from there.
    """
    if processes < 1:
        raise InvalidInputError(f"jobs must be >= 1, got {processes}.")
    listener = Listener() if listener is None else listener
    done: dict[Job, Record] = {}
    pending: list[Job] = []
    for job in jobs:
        found = None if fresh else records.load(job)
        if found is None:
            pending.append(job)
        else:
            done[job] = {**found, "reused": True}
    listener.planned(pending, len(done))
    pending.sort(key=lambda job: -job.track.cost)
    if processes == 1 or len(pending) < 2:
        for job in pending:
            done[job] = _run_here(job, records, listener)
    else:
        _run_in_processes(pending, records, processes, listener, done)
    return {job: done[job] for job in jobs}


def _run_here(job: Job, records: Records, listener: Listener) -> Record:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        listener.progress(job.label, "started")
        record = perform(job, lambda message: listener.progress(job.label, message))
    finally:
        torch.set_num_threads(threads)
    record = records.save(job, record)
    listener.finished(job, record)
    return record


def _run_in_processes(
    pending: Sequence[Job],
    records: Records,
    processes: int,
    listener: Listener,
    done: dict[Job, Record],
) -> None:
    def over(job: Job, future: Future[Record]) -> None:
        try:
            done[job] = future.result()
        except LostWorkError as error:
            done[job] = lost(job, str(error))
        listener.finished(job, done[job])

    work = {
        j: (_run_in_worker, (j.track.number, j.level.name, j.seeds, j.sabotage, records))
        for j in pending
    }
    perform_all(
        work, processes, lambda news: listener.progress(*news), over, on_lost=listener.repeated
    )


def _run_in_worker(
    number: int, level: str, seeds: tuple[int, ...], sabotage: str | None, records: Records
) -> Record:
    job = Job(all_tracks()[number], LEVELS[level], seeds, sabotage)

    def report(message: str) -> None:
        tell((job.label, message))

    report("started")
    return records.save(job, perform(job, report))
