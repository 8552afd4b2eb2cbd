"""The scripts that damage, wear out and kill say what they saw; exit code 1 where it is wrong."""

from __future__ import annotations

import importlib
import json
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A script as a module, which records into a folder of its own."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setattr(importlib.import_module("robustness"), "FOLDER", tmp_path / "found")

    def load(name: str, *words: str) -> ModuleType:
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *words])
        return importlib.import_module(name)

    return load


def recorded(tmp_path: Path, name: str) -> dict[str, Any]:
    return json.loads((tmp_path / "found" / f"{name}.json").read_text())


def test_a_record_says_how_it_was_made(script: Any, tmp_path: Path) -> None:
    robustness = script("robustness", "--steps", "7")
    robustness.record("soak", {"rise": 1.5})
    found = recorded(tmp_path, "soak")
    assert found["command"] == "python scripts/robustness.py --steps 7"
    assert found["rise"] == 1.5
    assert {"commit", "altered", "environment"} <= set(found)


def test_a_record_holds_no_nan(script: Any) -> None:
    """It would be no JSON."""
    with pytest.raises(ValueError, match="JSON"):
        script("robustness").record("soak", {"rise": float("nan")})


def test_without_a_repository_there_is_no_commit(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    robustness = script("robustness")
    monkeypatch.setattr(robustness, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    robustness.record("soak", {})
    assert recorded(tmp_path, "soak")["commit"] is None


FUZZED = """
from hypothesis import given, settings, strategies as st

@settings(max_examples=30, database=None)
@given(st.integers(0, 10**9))
def test_damage(number):
    assert number >= {least}
"""


@pytest.mark.parametrize(("least", "code"), [(0, 0), (10, 1)], ids=["whole", "broken"])
def test_fuzzing_counts_cases_and_failures(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: int, code: int
) -> None:
    """As hypothesis itself words its statistics."""
    fuzz = script("fuzz", "--cases", "20", "--seed", "3", "--record")
    (tmp_path / "tests" / "fuzz").mkdir(parents=True)
    (tmp_path / "tests" / "fuzz" / "test_it.py").write_text(FUZZED.format(least=least))
    monkeypatch.setattr(fuzz, "ROOT", tmp_path)
    assert fuzz.main() == code
    found = recorded(tmp_path, "fuzz")
    assert found["seed"] == 3
    assert found["passed"] is (code == 0)
    assert found["tests"][0]["test"] == "test_damage"
    assert (found["tests"][0]["failing"] > 0) is (code == 1)
    assert found["cases"] >= 20 or code == 1


def test_too_few_cases_are_no_pass(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fuzz = script("fuzz", "--cases", "5000")
    said = "tests/fuzz/test_it.py::test_damage:\n\n  - 30 passing examples, 0 failing examples\n"
    ended = subprocess.CompletedProcess([], 0, stdout=said)
    monkeypatch.setattr(fuzz.subprocess, "run", lambda *words, **options: ended)
    assert fuzz.main() == 1


def test_growth_at_the_beginning_is_no_leak(script: Any) -> None:
    soak = script("soak")
    flat = [(step, 100.0 + min(step, 150)) for step in range(0, 1001, 10)]
    assert soak.rise(flat) == pytest.approx(0, abs=1e-9)
    leaking = [(step, 100.0 + 0.02 * step) for step in range(0, 1001, 10)]
    assert soak.rise(leaking) == pytest.approx(16.0)


@pytest.mark.parametrize(("lost", "code"), [(0.0, 0), (0.2, 1)], ids=["flat", "leaking"])
def test_a_leak_ends_with_one(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: float, code: int
) -> None:
    """0.2 MB in every step, as read, over 100 steps of real training."""
    soak = script("soak", "--steps", "100", "--record")
    read = iter(range(10**6))
    monkeypatch.setattr(soak, "resident", lambda: 100.0 + lost * next(read))
    assert soak.main() == code
    found = recorded(tmp_path, "soak")
    assert len(found["memory"]) == 100
    assert found["rise"] == pytest.approx(lost * 79)


def test_resident_memory_is_read(script: Any) -> None:
    assert 10 < script("soak").resident() < 1e6


def command(kill: Any) -> Any:
    return kill.Command("train", lambda folder: ["train", str(folder)], kill.whole_files)


def test_a_program_that_runs_is_killed(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kill = script("kill")
    endless = [sys.executable, "-c", "import signal; signal.pause()"]
    started: list[subprocess.Popen[bytes]] = []

    def start(command: Any, folder: Path) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(endless))
        return started[-1]

    monkeypatch.setattr(kill, "start", start)
    killed = command(kill)
    assert kill.kill_once(killed, Path(), random.Random(0))
    assert killed.moments == [("program", 0.0)]
    assert killed.orphans == 0
    assert started[0].returncode == -9
    assert not kill.alive(started[0].pid)


def test_a_program_that_has_ended_is_not_counted(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill = script("kill")
    monkeypatch.setattr(kill, "start", lambda *_: subprocess.Popen([sys.executable, "-c", ""]))
    ended = command(kill)
    ended.seconds = 1e6
    late = random.Random(0)
    monkeypatch.setattr(late, "uniform", lambda low, high: high)
    assert not kill.kill_once(ended, Path(), late)
    assert ended.kills == 0
    assert ended.seconds < 1e6


def test_a_program_that_fails_ends_everything(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kill = script("kill")
    failing = [sys.executable, "-c", "raise SystemExit(3)"]
    monkeypatch.setattr(kill, "start", lambda *_: subprocess.Popen(failing))
    with pytest.raises(SystemExit, match="exit code 3"):
        kill.finish(command(kill), Path())


@pytest.mark.parametrize(("written", "different"), [("same", 0), ("other", 1)])
def test_another_end_result_is_seen(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str, different: int
) -> None:
    kill = script("kill")

    def kill_once(command: Any, folder: Path, chance: random.Random) -> bool:
        command.moments.append(("worker", 0.5))
        (folder / ".lock").write_text("")
        return True

    monkeypatch.setattr(kill, "kill_once", kill_once)
    monkeypatch.setattr(kill, "finish", lambda c, at: (at / "result").write_text(written))
    disturbed = command(kill)
    disturbed.expected = {"result": b"same"}
    (tmp_path / "train").mkdir()
    kill.disturb(disturbed, 2, tmp_path, random.Random(0))
    row = disturbed.row()
    assert (row["kills"], row["of_workers"], row["rounds"]) == (2, 2, 1)
    assert (row["different"], row["left_over"]) == (different, 1)
    assert kill.table([disturbed]).endswith(f"| train | 2 | 2 | 1 | {different} | 0 | 1 |")


def test_times_are_no_results(script: Any) -> None:
    found = {"accuracy": 1, "timing": 3.0, "runs": [{"timings": [1], "loss": 2}]}
    assert script("kill").without_times(found) == {"accuracy": 1, "runs": [{"loss": 2}]}
