"""One small benchmark, run once for all tests that only look at its outcome."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toreqprop.bench import plan
from toreqprop.bench.benchmark import BenchmarkReport, benchmark_report
from toreqprop.bench.plan import Plan, make_plan
from toreqprop.bench.reports import write_reports
from toreqprop.bench.run import Run
from toreqprop.evidence import Outcome, Store, provenance, run_jobs


def report_of(small: Plan, outcome: Outcome[Run]) -> BenchmarkReport:
    made = provenance(small.command(), 0.0)
    made["timing"] |= {"jobs": 1, "reused_runs": outcome.reused}
    return benchmark_report(small, outcome, {}, made)


@pytest.fixture(scope="session")
def small_plan() -> Iterator[Plan]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "BETAS", (0.001, 1.0))
        patch.setattr(plan, "MAX_STEPS", (1, 30))
        yield make_plan(["digits"], seeds=2, epochs=1)


@pytest.fixture(scope="session")
def small_outcome(small_plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Outcome[Run]:
    """By this process, which has imported and compiled everything already."""
    store = Store(tmp_path_factory.mktemp("here"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one step, or a large nudge, is not what a model likes
        return run_jobs(small_plan.runs(), store)


@pytest.fixture(scope="session")
def small_report(small_plan: Plan, small_outcome: Outcome[Run]) -> BenchmarkReport:
    return report_of(small_plan, small_outcome)


@pytest.fixture(scope="session")
def small_folder(small_report: BenchmarkReport, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_reports(small_report.as_dict(), folder)
    return folder


@pytest.fixture
def small_dict(small_report: BenchmarkReport) -> dict[str, Any]:
    return small_report.as_dict()
