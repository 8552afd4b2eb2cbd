"""A search in a database: the same trials after a stop, never one too many, none lost to a kill."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.processes import wait_until
from toreqprop.bench import shared_search
from toreqprop.errors import InvalidInputError

optuna = pytest.importorskip("optuna")

TRIALS = 6


class StoppedError(Exception):
    """In place of a Ctrl-C."""


def shared(url: str, attempts: list[float], *, stop_at: int | None = None) -> list[dict[str, Any]]:
    """A search for the largest of a function; ``attempts`` gets what this caller tried."""

    def attempt(asked: Any) -> tuple[float, dict[str, Any]]:
        x = asked.suggest_float("x", 0.01, 10.0, log=True)
        if len(attempts) == stop_at:
            raise StoppedError
        attempts.append(x)
        return -abs(x - 3), {"x": x}

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return shared_search.shared_trials(optuna, url, "s", TRIALS, 7, [{"x": 0.5}], attempt)


def test_a_search_that_was_stopped_tries_what_it_would_have_tried(tmp_path: Path) -> None:
    whole = shared(f"sqlite:///{tmp_path}/a.db", [])
    assert len(whole) == TRIALS
    assert whole[0] == {"x": 0.5}
    assert len({t["x"] for t in whole}) == TRIALS
    parts: list[float] = []
    url = f"sqlite:///{tmp_path}/b.db"
    with pytest.raises(StoppedError):
        shared(url, parts, stop_at=3)
    assert shared(url, parts) == whole
    again: list[float] = []
    assert len(shared(url, again)) == TRIALS
    assert again == []  # all of them were there


def test_two_share_the_trials_and_none_is_one_too_many(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/c.db"
    lists: list[list[float]] = [[], []]
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda own: shared(url, own), lists)
    assert first == second
    assert len(first) == TRIALS
    assert sorted(lists[0] + lists[1]) == sorted(t["x"] for t in first)


HELD = """
import sys, time
from tests.bench import test_shared_search as t
from toreqprop.bench import shared_search
shared_search.HEARTBEAT, shared_search.SILENCE = 1, 2
def attempt(asked):
    x = asked.suggest_float("x", 0.01, 10.0, log=True)
    open(sys.argv[2], "w").write(repr(x))
    time.sleep(1e6)
shared_search.shared_trials(t.optuna, sys.argv[1], "s", t.TRIALS, 7, [{"x": 0.5}], attempt)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_the_trial_of_a_killed_process_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, mark = f"sqlite:///{tmp_path}/d.db", tmp_path / "begun"
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", HELD, url, str(mark)], cwd=root, text=True, stderr=subprocess.PIPE
    )
    try:
        wait_until(process, lambda: mark.exists() and mark.read_text() != "")
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    monkeypatch.setattr(shared_search, "HEARTBEAT", 1)
    monkeypatch.setattr(shared_search, "SILENCE", 2)
    own: list[float] = []
    found = shared(url, own)
    assert len(found) == TRIALS
    assert float(mark.read_text()) == 0.5
    assert 0.5 in own


def test_what_is_no_database_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"--storage nonsense cannot be opened .* sqlite:"):
        shared("nonsense", [])
