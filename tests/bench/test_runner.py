"""Runs: the same whoever executes them, kept through any end, and absent data is said."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.bench import held
from tests.bench.conftest import report_of
from tests.processes import kill_when_there, running, wait_until
from toreqprop.bench.benchmark import KEPT, BenchmarkReport, run_benchmark
from toreqprop.bench.plan import Plan, make_plan
from toreqprop.bench.row_report import worst
from toreqprop.bench.rows import row
from toreqprop.bench.run import Run
from toreqprop.cli import app
from toreqprop.errors import DataUnavailableError, InvalidInputError
from toreqprop.evidence import Outcome, Record, Store, job, run_jobs, runner
from toreqprop.evidence.code import sources
from toreqprop.evidence.job import without_times
from toreqprop.sealed import write_sealed
from toreqprop.tasks import TASKS

FOLDER = "benchmark/quick-partial"
RUNS = 4
OPTIONS = ["benchmark", "--tasks", "digits", "--seeds", "1", "--epochs", "1", "--no-controls"]
"""One run of every arm."""


@dataclass(frozen=True)
class Disturbed:
    """A benchmark by two processes, one of which was killed when all other runs were finished."""

    result: Result
    processes: int
    output: Path


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Disturbed:
    output = tmp_path_factory.mktemp("disturbed")
    mark, before, seen = output / "worker", _workers(), []

    def others_are_finished() -> bool:
        seen[:] = _workers() - before
        return len(_finished(output / KEPT)) == RUNS - 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(held.AFTER, "2")  # the fourth run waits: three others are begun by then
        patch.setenv(held.MARK, str(mark))
        patch.setattr(runner, "perform_and_keep", held.perform_and_keep)
        killer = kill_when_there(mark, others_are_finished)
        words = [*OPTIONS, "--jobs", "2", "--output", str(output)]
        result = CliRunner().invoke(app, words)
        assert killer.result() in seen
    return Disturbed(result, len(seen), output)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_killed_worker_costs_one_run_twice(disturbed: Disturbed) -> None:
    """One of two processes is killed in the middle: all runs are in the report, and it is said."""
    assert disturbed.processes == 2
    said = disturbed.result.output
    (line,) = [line for line in said.splitlines() if "A process was killed" in line]
    assert "repeated, one at a time: digits, " in line
    assert disturbed.result.exit_code == 0, (said, disturbed.result.exception)
    assert len(_finished(disturbed.output / KEPT)) == RUNS


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_two_runs_give_the_same_report_whatever_the_jobs(
    small_plan: Plan, small_outcome: Outcome[Run], disturbed: Disturbed
) -> None:
    plan = replace(small_plan, seeds=1, controls=False)
    again = run_jobs(plan.runs(), Store(disturbed.output / KEPT))
    assert again.reused == RUNS  # two at a time, and one of them twice
    for run, record in again.records.items():
        before = small_outcome.records[run]  # the same runs, one after the other
        assert record["hash"] == before["hash"], run.label
        assert record["timing"] != before["timing"]
    first, second = (
        without_times(report_of(plan, found).as_dict()["rows"])
        for found in (again, Outcome({run: small_outcome.records[run] for run in again.records}))
    )
    for each in (*first, *second):  # what comes of times
        each.pop("ratio")
        for arm in each["arms"].values():
            arm.pop("seconds")
    assert first == second


def test_what_diverged_is_kept_as_a_finding(tmp_path: Path) -> None:
    run = make_plan(["digits"], seeds=1).runs()[0]
    store = Store(tmp_path)
    kept = store.save(run, {"worst": float("inf"), "rows": [{"loss": float("nan")}, 1.5]})
    assert (kept["worst"], kept["rows"]) == (None, [{"loss": None}, 1.5])
    assert store.load(run) == kept
    assert worst([1e-4, 2e-4]) == 2e-4
    assert worst([1e-4, None]) is None


def test_seeds_differ(small_report: BenchmarkReport) -> None:
    first, second = small_report.rows[0].arms["ep"].scores
    assert first != second


def test_the_key_depends_on_everything_a_run_is_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_plan(["digits"], seeds=1).runs()[0]
    chosen = run.chosen
    others = [
        replace(run, seed=43),
        replace(run, model="backprop"),
        replace(run, control="no-nudge"),
        replace(run, variant=("beta", 0.1)),
        replace(run, full=True),
        replace(run, chosen=replace(chosen, epochs=chosen.epochs + 1)),
        replace(run, chosen=replace(chosen, ep=replace(chosen.ep, beta=0.3))),
    ]
    keys = {run.key, *(other.key for other in others)}
    assert len(keys) == len(others) + 1
    assert run.key == make_plan(["digits"], seeds=1).runs()[0].key
    monkeypatch.setattr(job, "code_digest", lambda module: "other code")
    assert run.key not in keys
    monkeypatch.undo()
    monkeypatch.setattr(job, "deciding_versions", lambda: {"torch": "0.1"})
    assert run.key not in keys


def test_the_code_of_a_run_is_what_it_imports() -> None:
    """Initial weights, data and solvers decide a run; tracks, tuning and commands do not."""
    found = {path.as_posix().split("/toreqprop/")[-1] for path in sources(Run.__module__)}
    assert {"models/looped_mlp.py", "tasks/digits.py", "bench/run.py", "training.py"} <= found
    assert not {"bench/tuning.py", "bench/rows.py", "bench/hyperparameters.json"} & found
    assert not [name for name in found if name.startswith(("cli/", "verify/"))]


def test_a_damaged_or_foreign_measurement_is_not_taken_up(tmp_path: Path) -> None:
    run, store = make_plan(["digits"], seeds=1).runs()[0], Store(tmp_path)
    kept = store.save(run, {"accuracy": 0.5})
    assert store.load(run) == kept
    whole = store.path(run).read_text()
    store.path(run).write_text(whole.replace("0.5", "0.6"))  # one digit
    assert store.load(run) is None
    store.path(run).write_text(json.dumps({"key": run.key}))  # keys are missing
    assert store.load(run) is None
    store.path(run).write_text('{"key": "')
    assert store.load(run) is None
    write_sealed(store.path(run), {"key": "another", "accuracy": 0.5})
    assert store.load(run) is None


def test_a_row_without_data_or_settings_is_reported_and_the_rest_goes_on(
    small_plan: Plan, small_outcome: Outcome[Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(seed: int, full: bool) -> Any:
        raise DataUnavailableError("No copy of it: run `toreqprop data fetch mnist`.")

    monkeypatch.setitem(TASKS, "mnist", replace(TASKS["mnist"], load=missing))
    untuned = replace(row("digits"), name="new-row", title="New")
    plan = replace(small_plan, rows=(*small_plan.rows, row("mnist"), untuned))
    store = Store(tmp_path / KEPT)
    for run, record in small_outcome.records.items():
        store.save(run, record)  # so that only the missing rows are left to do
    report, _ = run_benchmark(plan, output=tmp_path)
    assert [found.name for found in report.rows] == ["digits"]
    assert "toreqprop data fetch mnist" in report.not_run["mnist"]
    assert "toreqprop tune new-row" in report.not_run["new-row"]
    assert report.made["timing"]["reused_runs"] == len(small_outcome.records)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_killed_at_any_moment_it_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partial = tmp_path / KEPT
    words = [*OPTIONS, "--jobs", "1", "--output", str(tmp_path)]

    with _start(words, held_after=2) as first:
        wait_until(first, lambda: len(_finished(partial)) == 2)
        before = _finished(partial)
        first.send_signal(signal.SIGINT)
        said, errors = first.communicate()
    assert first.returncode == 130
    sentence = said.strip().splitlines()[-1]
    assert sentence.startswith(f"2 of {RUNS} runs were finished and are kept in ")
    assert errors.strip().splitlines()[-1] == "Stopped."

    def interrupted(*arguments: Any) -> Record:
        raise KeyboardInterrupt

    # Nothing more is finished, and still two are kept.
    with monkeypatch.context() as patch:
        patch.setattr(runner, "keep", interrupted)
        idle = CliRunner().invoke(app, words)
    assert f"{RUNS - 2} runs to do, 2 resumed." in idle.output
    assert f"\n2 of {RUNS} runs were finished" in idle.output

    with _start(words, held_after=3) as second:
        wait_until(second, lambda: len(_finished(partial)) == 3)
        second.kill()
        second.communicate()
    kept = _finished(partial)
    times = {path: path.stat().st_mtime_ns for path in kept}
    assert set(before) <= set(kept)
    assert not (tmp_path / FOLDER / "benchmark.json").exists()

    third = CliRunner().invoke(app, words)
    said = third.output
    assert third.exit_code == 0, third.exception  # one epoch need not meet the bounds
    assert "A quick look at 1 epochs decides nothing" in said
    assert "FAIL" not in said
    assert f"{RUNS - len(kept)} runs to do, {len(kept)} resumed." in said
    assert {path: path.stat().st_mtime_ns for path in kept} == times
    report = json.loads((tmp_path / FOLDER / "benchmark.json").read_text())
    assert report["status"] == "QUICK LOOK"
    assert len(report["rows"][0]["keys"]) == RUNS
    assert report["timing"]["reused_runs"] == len(kept)
    assert "FAIL" not in (tmp_path / FOLDER / "benchmark.md").read_text()


def test_a_benchmark_in_which_nothing_could_run_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(seed: int, full: bool) -> Any:
        raise DataUnavailableError("No copy of it: run `toreqprop data fetch mnist`.")

    monkeypatch.setitem(TASKS, "mnist", replace(TASKS["mnist"], load=missing))
    for options in ([], ["--epochs", "1"]):
        command = ["benchmark", "--tasks", "mnist", "--seeds", "1", "--output", str(tmp_path)]
        result = CliRunner().invoke(app, [*command, *options])
        assert result.exit_code == 1, (result.output, result.exception)
        assert "was not run: No copy of it" in result.output
    assert json.loads((tmp_path / FOLDER / "benchmark.json").read_text())["status"] == "NOT RUN"


def test_bad_requests_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="rows: digits"):
        make_plan(["digit"])
    with pytest.raises(InvalidInputError, match="seeds must be >= 1"):
        make_plan(seeds=0)
    with pytest.raises(InvalidInputError, match="jobs must be >= 1"):
        run_jobs([], Store(tmp_path), processes=0)


def test_only_what_is_whole_goes_where_the_whole_is() -> None:
    assert make_plan().folder == "benchmark/quick"
    assert make_plan(full=True).folder == "benchmark/full"
    for part in (
        make_plan(["digits"]),
        make_plan(seeds=2),
        make_plan(epochs=1),
        make_plan(first_seed=1),
        make_plan(controls=False),
    ):
        assert part.folder == "benchmark/quick-partial"


def test_seeds_are_as_many_as_the_verdicts_need() -> None:
    quick, full = make_plan(), make_plan(full=True)
    assert {len(quick.seeds_of(of)) for of in quick.rows} == {3}
    least = {"digits": 20, "cartpole": 20, "acrobot": 20, "mnist": 10, "fashion": 10}
    for name, count in least.items():
        assert len(full.seeds_of(row(name))) >= count


def _start(words: list[str], *, held_after: int) -> AbstractContextManager[subprocess.Popen[str]]:
    root = Path(__file__).parents[2]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(root), *sys.path]),
        held.AFTER: str(held_after),
    }
    return running([sys.executable, "-m", "tests.bench.held", *words], env=environment)


def _workers() -> set[int]:
    """The processes in which this one's jobs are, not the one that tracks its resources."""
    listed = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(os.getpid())],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return {int(line.split()[0]) for line in listed if "spawn_main" in line}


def _finished(partial: Path) -> list[Path]:
    return sorted(path for path in partial.glob("*.json") if not path.name.startswith("."))
