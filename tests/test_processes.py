"""Work in processes of its own: news, results, failures, and no work at all."""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from toreqprop.errors import LostWorkError
from toreqprop.processes import perform_all, tell


@pytest.fixture(autouse=True)
def _light_workers(tmp_path_factory: pytest.TempPathFactory, monkeypatch: Any) -> None:
    """Workers take seconds to import PyTorch, of which they only set the number of threads here."""
    folder = tmp_path_factory.mktemp("light")
    (folder / "torch.py").write_text(LIGHT)
    monkeypatch.syspath_prepend(folder)


LIGHT = """
threads = 0

def set_num_threads(count):
    global threads
    threads = count
"""


def double(number: int) -> int:
    import torch

    tell(f"doubling {number} with {torch.threads} thread")  # type: ignore[attr-defined]
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
    assert sorted(news) == [f"doubling {k} with 1 thread" for k in (-1, 1, 2)]


def test_no_work_is_done_at_once() -> None:
    perform_all({}, 2, lambda news: None, lambda key, future: None)


def die_once(folder: str, name: str) -> str:
    """Killed in the middle the first time; the second time it comes to its end."""
    mark = Path(folder, name)
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return name


def die(name: str) -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return name


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_killed_piece_is_done_again_and_the_rest_is_done(tmp_path: Path) -> None:
    results: dict[str, Any] = {}
    lost: list[str] = []

    def done(key: str, future: Future[Any]) -> None:
        assert key not in results
        results[key] = future.exception() or future.result()

    work: dict[str, Any] = {f"number {k}": (double, (k,)) for k in range(6)}
    work["once"] = (die_once, (str(tmp_path), "once"))
    work["always"] = (die, ("always",))
    work |= {f"number {k}": (double, (k,)) for k in range(6, 9)}
    perform_all(work, 2, lambda news: None, done, on_lost=lost.extend)
    assert {f"number {k}": results.pop(f"number {k}") for k in range(9)} == {
        f"number {k}": 2 * k for k in range(9)
    }
    assert results.pop("once") == "once"
    assert isinstance(results.pop("always"), LostWorkError)
    assert not results
    assert {"once", "always"} <= set(lost)
