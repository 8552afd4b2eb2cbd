"""Runs: the same whoever executes them, kept through any end, and absent data is said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench.conftest import report_of, without_times
from tests.processes import listen_to_interrupts
from toreqprop.bench.plan import Plan, make_plan
from toreqprop.bench.runner import Outcome, run_all
from toreqprop.bench.store import Store
from toreqprop.errors import DataUnavailableError, InvalidInputError
from toreqprop.tasks import TASKS


def test_two_runs_give_the_same_report_whatever_the_jobs(
    small_plan: Plan, small_outcome: Outcome, tmp_path: Path
) -> None:
    plan = replace(small_plan, seeds=small_plan.seeds[:1])
    again = report_of(plan, run_all(plan.runs(), Store(tmp_path), jobs=1))
    before = report_of(plan, small_outcome)  # the same runs, two at a time
    assert json.dumps(without_times(again)) == json.dumps(without_times(before))
    assert again["tasks"][0]["timing"] != before["tasks"][0]["timing"]


def test_seeds_differ(small_report: dict[str, Any]) -> None:
    first, second = small_report["tasks"][0]["models"]["ep"]["scores"]
    assert first != second


def test_the_key_depends_on_everything_a_run_is_made_of() -> None:
    run = make_plan(["digits"], 1).runs()[1]
    settings = run.settings
    others = [
        replace(run, seed=43),
        replace(run, model="backprop"),
        replace(run, control="no-nudge"),
        replace(run, full=True),
        replace(run, settings=replace(settings, epochs=settings.epochs + 1)),
        replace(run, settings=replace(settings, ep=replace(settings.ep, beta=0.3))),
    ]
    assert len({run.key, *(other.key for other in others)}) == len(others) + 1
    assert run.key == make_plan(["digits"], 1).runs()[1].key


def test_a_damaged_or_foreign_measurement_is_not_taken_up(tmp_path: Path) -> None:
    run, store = make_plan(["digits"], 1).runs()[0], Store(tmp_path)
    store.save(run, {"key": run.key, "accuracy": 0.5})
    assert store.load(run) == {"key": run.key, "accuracy": 0.5}
    store.path(run).write_text('{"key": "')
    assert store.load(run) is None
    store.save(run, {"key": "another", "accuracy": 0.5})
    assert store.load(run) is None


def test_a_task_without_data_is_reported_and_the_rest_goes_on(
    small_plan: Plan, small_outcome: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(seed: int, full: bool) -> Any:
        raise DataUnavailableError("No copy of it: run `toreqprop data fetch mnist`.")

    monkeypatch.setitem(TASKS, "mnist", replace(TASKS["mnist"], load=missing))
    plan = replace(small_plan, tasks=("digits", "mnist"))
    store = Store(tmp_path)
    for run, measurement in small_outcome.measurements.items():
        store.save(run, measurement)  # so that only the missing task is left to do
    outcome = run_all(plan.runs(), store, jobs=1)
    report = report_of(plan, outcome)
    digits, mnist = report["tasks"]
    assert digits["status"] in ("PASS", "FAIL")
    assert mnist["status"] == "NOT RUN"
    assert "toreqprop data fetch mnist" in mnist["reason"]
    assert outcome.reused == len(small_outcome.measurements)
    assert report["average_gap"] == digits["comparison"]["gap"]["mean"]


SEEDS = 6
"""Enough runs that some are left when the signal arrives, however busy the machine is."""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_killed_at_any_moment_it_goes_on_where_it_was(tmp_path: Path) -> None:
    partial = tmp_path / ".partial"

    first = _start(tmp_path)
    before = _wait_for(first, partial, 1)
    first.send_signal(signal.SIGINT)
    said, errors = first.communicate(timeout=60)
    assert first.returncode == 130
    sentence = said.strip().splitlines()[-1]
    assert f"of {2 * SEEDS} runs were finished" in sentence
    assert errors.strip().splitlines()[-1] == "Stopped."

    second = _start(tmp_path)
    _wait_for(second, partial, len(_finished(partial)) + 1)
    second.kill()
    second.communicate(timeout=60)
    kept = _finished(partial)
    times = {path: path.stat().st_mtime_ns for path in kept}
    assert set(before) <= set(kept)
    assert not (tmp_path / "benchmark.json").exists()

    third = _start(tmp_path)
    said, errors = third.communicate(timeout=120)
    assert third.returncode == 1, errors  # one epoch does not meet the bounds
    left = 2 * SEEDS - len(kept)
    assert f"{left} runs to do, {len(kept)} taken up from before." in said
    assert {path: path.stat().st_mtime_ns for path in kept} == times
    report = json.loads((tmp_path / "benchmark.json").read_text())
    assert len(report["runs"]) == 2 * SEEDS
    assert report["timing"]["reused_runs"] == len(kept)


def test_bad_requests_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="known tasks"):
        make_plan(["digit"], 3)
    with pytest.raises(InvalidInputError, match="seeds must be >= 1"):
        make_plan(None, 0)
    with pytest.raises(InvalidInputError, match="no larger data set"):
        make_plan(["digits"], 3, full=True)
    with pytest.raises(InvalidInputError, match="jobs must be >= 1"):
        run_all([], Store(tmp_path), jobs=0)


def _start(folder: Path) -> subprocess.Popen[str]:
    script = Path(__file__).parents[2] / "scripts" / "multi_dataset_benchmark.py"
    options = ["--tasks", "digits", "--seeds", str(SEEDS), "--epochs", "1", "--no-controls"]
    command = [sys.executable, str(script), *options, "--jobs", "1", "--output", str(folder)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        preexec_fn=listen_to_interrupts,
    )


def _finished(partial: Path) -> list[Path]:
    return sorted(path for path in partial.glob("*.json") if not path.name.startswith("."))


def _wait_for(process: subprocess.Popen[str], partial: Path, count: int) -> list[Path]:
    deadline = time.monotonic() + 100
    while len(_finished(partial)) < count:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return _finished(partial)
