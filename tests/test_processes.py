"""Work in processes of its own: news, results, failures, and no work at all."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from toreqprop.processes import perform_all, tell


def double(number: int) -> int:
    tell(f"doubling {number}")
    if number < 0:
        raise ValueError("negative")
    return 2 * number


def test_every_piece_is_done_and_tells_of_itself() -> None:
    news: list[Any] = []
    results: dict[str, Any] = {}

    def done(key: str, future: Future[int]) -> None:
        results[key] = future.exception() or future.result()

    work = {"one": (double, (1,)), "two": (double, (2,)), "bad": (double, (-1,))}
    perform_all(work, 2, news.append, done)
    assert (results["one"], results["two"]) == (2, 4)
    assert isinstance(results["bad"], ValueError)
    assert sorted(news) == ["doubling -1", "doubling 1", "doubling 2"]


def test_no_work_is_done_at_once() -> None:
    perform_all({}, 2, lambda news: None, lambda key, future: None)
