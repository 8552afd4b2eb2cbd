"""Independent pieces of work in processes of their own, with news from each while it runs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing.queues import Queue
from queue import Empty
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)

Work = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function of a module and its arguments; both travel to another process."""


def perform_all(
    work: Mapping[K, Work],
    processes: int,
    on_news: Callable[[Any], None],
    on_done: Callable[[K, Future[Any]], None],
    prepare: Callable[[], None] | None = None,
) -> None:
    """Do all the work in single-threaded processes, the first pieces first.

    ``on_news`` gets what a piece sends by `tell`, ``on_done`` its key and its future; ``prepare``
    runs once in every process. Whatever ends this function, an error or Ctrl-C, ends the processes,
    and so does the death of the parent.
    """
    if not work:
        return
    context = multiprocessing.get_context("spawn")
    news: Queue[Any] = context.Queue()
    pool = ProcessPoolExecutor(
        min(processes, len(work)), context, initializer=_start_worker, initargs=(news, prepare)
    )
    try:
        futures = {pool.submit(do, *arguments): key for key, (do, arguments) in work.items()}
        waiting: set[Future[Any]] = set(futures)
        while waiting:
            done, waiting = wait(waiting, timeout=0.1, return_when=FIRST_COMPLETED)
            _drain(news, on_news)
            for future in done:
                on_done(futures[future], future)
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown(wait=True)
    _drain(news, on_news)  # a result may overtake the last news


def tell(news: Any) -> None:
    """Send news from a piece of work to whoever waits for it; in the parent, to nobody."""
    if _news is not None:
        _news.put(news)


def _drain(news: Queue[Any], on_news: Callable[[Any], None]) -> None:
    while True:
        try:
            on_news(news.get_nowait())
        except Empty:
            return


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
