"""`make results`: a report is up to date only under the code, settings and versions of its runs."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest

from tests.docs.pages import ROOT
from toreqprop.bench.hardware.faults import FAULTS
from toreqprop.bench.hardware.methods import RECIPES
from toreqprop.bench.hardware.plan import Plan, choose
from toreqprop.bench.plan import make_plan
from toreqprop.evidence import job


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("stale_results")


def test_a_report_of_other_code_is_stale(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: dict[str, dict[str, str]] = {}
    for run in make_plan().runs():
        if run.control is None and run.variant is None:
            rows.setdefault(run.task, {})[run.label] = run.key
    report = {
        "level": "quick",
        "rows": [{"name": n, "title": n, "keys": keys} for n, keys in rows.items()],
    }
    assert script.benchmark_staleness(report) == []
    report["rows"][0]["keys"]["digits-ep-42"] = "another"  # type: ignore[index]
    assert script.benchmark_staleness(report) == ["digits"]
    monkeypatch.setattr(job, "code_digest", lambda module: "other code")
    assert set(script.benchmark_staleness(report)) == set(rows)


def test_a_sweep_of_chips_with_other_or_missing_cells_is_stale(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "deciding_versions", dict)  # looked up once for each key
    plan = Plan(RECIPES["digits"])
    trials = plan.trials()
    cells = plan.cells(choose({cell: {"accuracy": 90.0} for cell in trials}))
    report = {
        "task": "digits",
        "keys": {cell.label: cell.key for cell in (*trials, *cells)},
        "search": [
            {
                "fault": c.fault.name, "method": c.method, "held_out": [90.0],
                "learning_rate": c.recipe.learning_rate, "epochs": c.recipe.epochs,
            }
            for c in trials
        ],
    }  # fmt: skip
    assert script.sweep_staleness(report) == []
    last = FAULTS[-1].name
    del report["keys"][cells[-1].label]  # type: ignore[attr-defined]
    assert script.sweep_staleness(report) == [last]
    monkeypatch.setattr(job, "code_digest", lambda module: "other code")
    assert script.sweep_staleness(report) == ["search"]
