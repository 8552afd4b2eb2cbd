"""Independent pieces of work in processes of their own, with news from each while it runs; or on
other machines, through an executor."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.queues import Queue
from queue import Empty
from typing import Any, Generic, TypeVar

from toreqprop.errors import LostWorkError
from toreqprop.executors import Work, executor_of, perform_elsewhere

K = TypeVar("K", bound=Hashable)


def perform_all(
    work: Mapping[K, Work],
    processes: int,
    on_news: Callable[[Any], None],
    on_done: Callable[[K, Future[Any]], None],
    prepare: Callable[[], None] | None = None,
    on_lost: Callable[[Sequence[K]], None] = lambda keys: None,
    executor: Executor | str | None = None,
) -> None:
    """Do all the work in single-threaded processes, the first pieces first.

    ``on_news`` gets what a piece sends by `tell`, ``on_done`` its key and its future; ``prepare``
    runs once in every process. Whatever ends this function, an error or Ctrl-C, ends the processes,
    and so does the death of the parent.

    Where a process is killed, ``on_lost`` gets the pieces that were under way; each is done once
    more, alone, and the rest after them. One whose process is killed again ends in a future with a
    `LostWorkError`.

    With an ``executor``, or the address of a dask scheduler, the work is done there, without news
    while a piece runs; what was lost there for good is done here as above.
    """
    if executor is not None:
        with executor_of(executor) as there:
            left = perform_elsewhere(work, there, on_done, prepare)
        if left:
            on_lost(left)
        work, processes = {key: work[key] for key in left}, 1
    pool = _Pool(work, on_news, on_done, prepare)
    left = list(work)
    while left:
        lost, left = pool.run(left, processes)
        if lost:
            on_lost(lost)
        for key in lost:
            if pool.run([key], 1)[0]:
                future: Future[Any] = Future()
                future.set_exception(
                    LostWorkError(
                        "Its process was killed twice, perhaps for lack of memory: run fewer jobs "
                        "at once."
                    )
                )
                on_done(key, future)


@dataclass(frozen=True)
class _Started:
    """News of the machinery itself: a piece is under way."""

    number: int


@dataclass(frozen=True)
class _Pool(Generic[K]):
    work: Mapping[K, Work]
    on_news: Callable[[Any], None]
    on_done: Callable[[K, Future[Any]], None]
    prepare: Callable[[], None] | None

    def run(self, keys: Sequence[K], processes: int) -> tuple[list[K], list[K]]:
        """Do these pieces; where a process is killed, those under way then and those not begun."""
        context = multiprocessing.get_context("spawn")
        news: Queue[Any] = context.Queue()
        begun: set[int] = set()

        def drain() -> None:
            while True:
                try:
                    found = news.get_nowait()
                except Empty:
                    return
                if isinstance(found, _Started):
                    begun.add(found.number)
                else:
                    self.on_news(found)

        pool = ProcessPoolExecutor(
            min(processes, len(keys)),
            context,
            initializer=_start_worker,
            initargs=(news, self.prepare),
        )
        unfinished: list[int] = []
        try:
            numbers = {
                pool.submit(_perform, number, *self.work[key]): number
                for number, key in enumerate(keys)
            }
            waiting: set[Future[Any]] = set(numbers)
            while waiting:
                done, waiting = wait(waiting, timeout=0.1, return_when=FIRST_COMPLETED)
                drain()
                for future in done:
                    if isinstance(future.exception(), BrokenProcessPool):
                        unfinished.append(numbers[future])
                    else:
                        self.on_done(keys[numbers[future]], future)
        except BaseException:
            for process in list((pool._processes or {}).values()):
                process.terminate()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        pool.shutdown(wait=True)
        drain()  # a result may overtake the last news
        # The first ones where not even the news of a beginning came through.
        lost = sorted(begun & set(unfinished)) or sorted(unfinished)[:processes]
        rest = sorted(set(unfinished) - set(lost))
        return [keys[n] for n in lost], [keys[n] for n in rest]


def tell(news: Any) -> None:
    """Send news from a piece of work to whoever waits for it; in the parent, to nobody."""
    if _news is not None:
        _news.put(news)


def _perform(number: int, do: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    tell(_Started(number))
    return do(*arguments)


_news: Queue[Any] | None = None


def _start_worker(news: Queue[Any], prepare: Callable[[], None] | None) -> None:
    global _news
    import torch

    _news = news
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if prepare is not None:
        prepare()


def _end_with_parent() -> None:
    """A killed parent cannot end its workers: they end themselves."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
