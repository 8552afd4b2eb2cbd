"""scikit-learn's searches on other machines: joblib's work, done by any executor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any

from joblib import parallel_config, register_parallel_backend
from joblib.parallel import ParallelBackendBase

from toreqprop.executors import alone, executor_of

NAME = "toreqprop-executor"


class ExecutorBackend(ParallelBackendBase):
    """What joblib asks of a backend, answered by an executor; one fit at a time in a process."""

    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(self, executor: Executor | None = None, **more: Any) -> None:
        super().__init__(**more)
        self.executor = executor

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """How many are handed out at once; the executor decides how many of them run."""
        return 1 if n_jobs == 0 or self.executor is None else _workers(self.executor, n_jobs)

    def submit(
        self, func: Callable[[], Any], callback: Callable[[Future[Any]], None] | None = None
    ) -> Future[Any]:
        assert self.executor is not None
        future = self.executor.submit(alone, func, ())
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        return out.result()


def _workers(executor: Executor, n_jobs: int | None) -> int:
    if n_jobs is not None and n_jobs > 0:
        return n_jobs
    known = getattr(executor, "_max_workers", None)
    return known if isinstance(known, int) else 1000  # dask: as many as there are, also later ones


@contextmanager
def searching_on(executor: Executor | str) -> Iterator[None]:
    """Inside this block the fits of scikit-learn's searches are done by an executor.

    ``executor`` is any `concurrent.futures.Executor`, or the address of a dask scheduler, which
    repeats the fits of a worker that dies. ``n_jobs`` of the search says how many are handed out
    at once; None and -1 are as many as there are workers.

    Raises:
        InvalidInputError: dask is not installed, or nothing answers at the address.
    """
    with executor_of(executor) as found:
        register_parallel_backend(NAME, ExecutorBackend)
        with parallel_config(backend=NAME, executor=found):
            yield
