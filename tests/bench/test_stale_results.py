"""`make results`: a report is up to date only under the code, settings and versions of its runs."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.pages import ROOT
from toreqprop.bench import beta_sweep
from toreqprop.bench.hardware.faults import FAULTS
from toreqprop.bench.hardware.methods import RECIPES
from toreqprop.bench.hardware.plan import Plan, choose
from toreqprop.bench.plan import make_plan
from toreqprop.evidence import job
from toreqprop.verify.mutations.catalogue import mutations
from toreqprop.verify.mutations.score import Planted


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


def test_every_kind_of_file_is_asked(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = (42,)
    keys = {name: Planted(m.track, name, "quick", seeds).key for name, m in mutations().items()}
    rows = [{"name": name, "key": key} for name, key in keys.items()]
    faults = {"level": "quick", "seeds": list(seeds), "mutations": rows}
    (sweep,) = (m for m in beta_sweep.measurements(42) if m.name == "centred, float32, 42")
    entry = {
        "label": sweep.label, "module": sweep.module, "settings": sweep.settings(),
        "key": sweep.key,
    }  # fmt: skip
    study = {"measurements": [entry]}
    assert script.staleness(Path("mutations.json"), faults) == []
    assert script.staleness(Path("beta_sweep.json"), study) == []
    assert script.staleness(Path("other.json"), {"figures": 1}) is None
    assert script.staleness(Path("mutations.json"), {**faults, "mutations": rows[1:]}) == [
        f"{rows[0]['name']} (not in it)"
    ]
    monkeypatch.setattr(job, "code_digest", lambda module: "other code")
    assert script.staleness(Path("beta_sweep.json"), study) == [sweep.label]
    assert set(script.staleness(Path("mutations.json"), faults)) == set(keys)


def test_the_implicit_gradient_is_on_the_first_seeds_of_every_row() -> None:
    for full, counts in ((True, {3}), (False, {1})):
        runs = [r for r in make_plan(full=full).runs() if r.control is None and r.variant is None]
        found = {
            task: sum(r.task == task and r.model == "implicit" for r in runs)
            for task in ("digits", "mnist", "mnist-full" if full else "acrobot")
        }
        assert set(found.values()) == counts
