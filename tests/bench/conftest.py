"""One small benchmark, run once for all tests that only look at its outcome."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from toreqprop.bench.runner import Outcome, run_all
from toreqprop.bench.store import Store
from toreqprop.bench.summary import summarise_benchmark

from toreqprop.bench.plan import Plan, make_plan
from toreqprop.bench.reports import write_reports
from toreqprop.evidence import environment


def report_of(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    report = summarise_benchmark(plan, outcome, environment(), "toreqprop benchmark")
    report["timing"] = {"command_seconds": 1.0, "jobs": 1, "reused_runs": outcome.reused}
    return report


def without_times(value: Any) -> Any:
    """The same data without any ``timing``."""
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k != "timing"}
    return [without_times(v) for v in value] if isinstance(value, list) else value


@pytest.fixture(scope="session")
def small_plan() -> Plan:
    return make_plan(["digits"], 2, epochs=1)


@pytest.fixture(scope="session")
def small_outcome(small_plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    store = Store(tmp_path_factory.mktemp("two-jobs"))
    return run_all(small_plan.runs(), store, jobs=2)


@pytest.fixture(scope="session")
def small_report(small_plan: Plan, small_outcome: Outcome) -> dict[str, Any]:
    return report_of(small_plan, small_outcome)


@pytest.fixture(scope="session")
def small_folder(small_report: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_reports(small_report, folder)
    return folder
