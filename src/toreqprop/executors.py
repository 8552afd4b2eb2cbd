"""Work on other machines: any `concurrent.futures.Executor`, or the address of a dask scheduler."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    wait,
)
from contextlib import contextmanager
from typing import Any, TypeVar

from toreqprop.errors import InvalidInputError

K = TypeVar("K", bound=Hashable)

Work = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function of a module and its arguments; both travel to another process."""

PATIENCE = "60s"
"""How long a scheduler may take to answer."""

_alone = threading.Lock()
_prepared: set[Callable[[], None]] = set()


@contextmanager
def executor_of(given: Executor | str) -> Iterator[Executor]:
    """The executor itself, which stays its owner's, or that of a dask scheduler at an address.

    Raises:
        InvalidInputError: dask is not installed, or nothing answers at the address.
    """
    if isinstance(given, Executor):
        yield given
        return
    if not isinstance(given, str):
        raise InvalidInputError(
            "workers must be a concurrent.futures.Executor or the address of a dask scheduler, "
            f"got {type(given).__name__}."
        )
    try:
        from distributed import Client
    except ImportError:
        raise InvalidInputError(
            'A scheduler needs dask: run `pip install "toreqprop[distributed]"`.'
        ) from None
    try:
        client = Client(given, timeout=PATIENCE)
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInputError(
            f"No dask scheduler answers at {given} ({type(error).__name__}): start one with "
            "`dask scheduler`, and give the address it prints."
        ) from None
    try:
        yield client.get_executor()
    finally:
        client.close()


def perform_elsewhere(
    work: Mapping[K, Work],
    executor: Executor,
    on_done: Callable[[K, Future[Any]], None],
    prepare: Callable[[], None] | None = None,
) -> list[K]:
    """Hand all the work to an executor; the pieces it could not do, because its workers died.

    A dask scheduler gives the pieces of a worker that dies to another one by itself, and gives one
    back only where several workers died of it. Whatever ends this function takes back what has not
    begun.
    """
    lost: list[K] = []
    futures: dict[Future[Any], K] = {}
    try:
        for key, (do, arguments) in work.items():
            try:
                futures[executor.submit(alone, do, arguments, prepare)] = key
            except BrokenExecutor:
                lost.append(key)
        waiting = set(futures)
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                if _was_lost(future):
                    lost.append(futures[future])
                else:
                    on_done(futures[future], future)
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    return [key for key in work if key in set(lost)]


def alone(
    do: Callable[..., Any], arguments: tuple[Any, ...], prepare: Callable[[], None] | None = None
) -> Any:
    """Do a piece of work on one thread and by itself in this process.

    Torch has one random generator and one number of threads for a whole process: two pieces in
    two threads of it, which some executors have, would change each other's numbers.
    """
    import torch

    with _alone:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            if prepare is not None and prepare not in _prepared:
                prepare()
                _prepared.add(prepare)
            return do(*arguments)
        finally:
            torch.set_num_threads(threads)


def _was_lost(future: Future[Any]) -> bool:
    """Whether the worker died, and not the work failed."""
    if future.cancelled():
        return True
    error = future.exception()
    # By name: dask, whose exception the second one is, need not be installed.
    return isinstance(error, BrokenExecutor | CancelledError) or (
        error is not None and type(error).__name__ in ("KilledWorker", "FutureCancelledError")
    )
