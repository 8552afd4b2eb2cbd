"""A benchmark from Python: a plan in, a typed report out; the command line prints it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from toreqprop.bench.hyperparameters import read
from toreqprop.bench.insights import conclusion, insights, mean_gap
from toreqprop.bench.plan import Plan, make_plan
from toreqprop.bench.reports import write_reports
from toreqprop.bench.row_report import RowReport, judge, row_report
from toreqprop.bench.run import EPISODES, Run
from toreqprop.bench.studies import ControlReport, Sensitivity, control_reports, sensitivity
from toreqprop.errors import DataUnavailableError
from toreqprop.evidence import Listener, Outcome, Record, Store, provenance, run_jobs
from toreqprop.evidence.statistics import CONFIDENCE, SIGNIFICANCE
from toreqprop.tasks import get

KEPT = ".partial"
"""The folder of finished runs, inside that of the reports."""


@dataclass(frozen=True)
class BenchmarkReport:
    """What a benchmark found.

    ``not_run`` has the reason for every row without a verdict; ``examples`` are the records of the
    first seed, with curves and confusions, for figures; ``made`` has commit, command, environment
    and times.
    """

    plan: Plan
    rows: tuple[RowReport, ...]
    controls: tuple[ControlReport, ...]
    sensitivity: Sensitivity | None
    not_run: dict[str, str]
    lost: dict[str, str]
    examples: tuple[Record, ...]
    made: dict[str, Any]

    @property
    def status(self) -> str:
        """PASS, NOT SHOWN where power is lacking, FAIL, INCOMPLETE, NOT RUN, or QUICK LOOK."""
        parts = [row.status for row in self.rows] + [c.status for c in self.controls]
        if not self.rows:
            return "NOT RUN"
        if self.plan.epochs is not None:
            return (
                "QUICK LOOK"  # the bounds are for networks trained as long as they were tuned for
            )
        if "FAIL" in parts:
            return "FAIL"
        if self.not_run:
            return "INCOMPLETE"
        return "NOT SHOWN" if "NOT SHOWN" in parts else "PASS"

    @property
    def passed(self) -> bool:
        """Whether something ran, nothing failed and nothing was lost; "not shown" is no failure."""
        return self.status not in ("FAIL", "NOT RUN") and not self.lost

    def as_dict(self) -> dict[str, Any]:
        """Plain data: the content of ``benchmark.json``."""
        searches = read(self.plan.hyperparameters)["rows"]
        return {
            **self.made,
            "level": self.plan.level,
            "whole": self.plan.whole,
            "epochs_override": self.plan.epochs,
            "status": self.status,
            "mean_gap": mean_gap(self.rows),
            "insights": insights(self.rows, self.sensitivity),
            "conclusion": conclusion(self.rows),
            "statistics": {
                "confidence": CONFIDENCE,
                "significance": SIGNIFICANCE,
                "policy_episodes": EPISODES,
            },
            "rows": [self._row(row) for row in self.rows],
            "not_run": [
                {"name": of.name, "title": of.title, "reason": self.not_run[of.name]}
                for of in self.plan.rows
                if of.name in self.not_run
            ],
            "controls": [asdict(control) for control in self.controls],
            "sensitivity": None if self.sensitivity is None else asdict(self.sensitivity),
            "searches": {row.name: searches[row.name]["search"] for row in self.rows},
            "examples": list(self.examples),
        }

    def _row(self, row: RowReport) -> dict[str, Any]:
        return {**asdict(row), "comparison": asdict(row.comparison)}


def run_benchmark(
    plan: Plan | None = None,
    *,
    processes: int = 1,
    output: Path = Path("results"),
    fresh: bool = False,
    listener: Listener[Run] | None = None,
    executor: Executor | str | None = None,
) -> tuple[BenchmarkReport, tuple[Path, ...]]:
    """Run a plan, by default the quick one, write its report, and return it with its files.

    Finished runs of equal code, settings, data and versions are resumed from ``output``. Runs are
    done in ``processes`` of this machine, or by an ``executor``: any `concurrent.futures.Executor`,
    or the address of a dask scheduler.
    """
    started = time.time()
    plan = make_plan() if plan is None else plan
    runs = plan.runs()
    absent = _unavailable(runs)
    runs = [run for run in runs if run.task not in absent]
    outcome = run_jobs(
        runs, Store(output / KEPT), processes, listener, fresh=fresh, executor=executor
    )
    made = provenance(plan.command(), started)
    jobs = processes if executor is None else "elsewhere"
    made["timing"] |= {"jobs": jobs, "reused_runs": outcome.reused}
    report = benchmark_report(plan, outcome, {**plan.untuned(), **absent}, made)
    return report, tuple(write_reports(report.as_dict(), output / plan.folder))


def benchmark_report(
    plan: Plan, outcome: Outcome[Run], not_run: Mapping[str, str], made: dict[str, Any]
) -> BenchmarkReport:
    """The report of finished runs; a row with a run missing has no verdict."""
    reasons = dict(not_run)
    for run, reason in (*outcome.absent.items(), *outcome.lost.items()):
        if run.control is None and run.variant is None:
            reasons.setdefault(run.task, reason)
    records = {run: r for run, r in outcome.records.items() if "not_run" not in r}
    found = []
    for of in plan.rows:
        own = {
            run: r
            for run, r in records.items()
            if run.task == of.name and run.control is None and run.variant is None
        }
        if of.name in reasons or not own:
            reasons.setdefault(of.name, "its runs were not finished")
            continue
        found.append((of, row_report(of, own)))
    studied = next((of for of, _ in found), plan.rows[0])
    return BenchmarkReport(
        plan=plan,
        rows=tuple(judge(found)),
        controls=control_reports(studied, records),
        sensitivity=sensitivity(studied, records),
        not_run=reasons,
        lost={run.label: reason for run, reason in outcome.lost.items()},
        examples=tuple(r for run, r in records.items() if run.detailed),
        made=made,
    )


def _unavailable(runs: list[Run]) -> dict[str, str]:
    """Rows whose data is not available, with the reason; asked once, before any process starts."""
    reasons: dict[str, str] = {}
    seen: set[str] = set()
    for run in runs:
        if run.task not in seen:
            seen.add(run.task)
            try:
                get(run.chosen.task).load(run.seed, run.full)
            except DataUnavailableError as error:
                reasons[run.task] = str(error)
    return reasons
