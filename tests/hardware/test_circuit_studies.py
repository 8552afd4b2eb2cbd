"""The studies of circuits: every measurement can be called as it says, and one is."""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from toreqprop.bench.circuits import studies
from toreqprop.cli import app, names
from toreqprop.evidence.study import stale
from toreqprop.hardware import Ngspice


@pytest.mark.parametrize("name", studies.STUDIES)
def test_every_measurement_can_be_called_and_has_a_label_of_its_own(name: str) -> None:
    jobs = studies.STUDIES[name].measurements(range(10))
    assert len({job.label for job in jobs}) == len(jobs) > 0
    for job in jobs:
        module, _, function = job.function.partition(":")
        called = getattr(importlib.import_module(module), function)
        inspect.signature(called).bind(**dict(job.arguments))


def test_the_shell_knows_their_names() -> None:
    assert tuple(studies.STUDIES) == names.CIRCUIT_STUDIES


def test_strong_mismatch_is_summed_up_by_itself() -> None:
    kinds = ("ideal", "deployed", "in_place", "frozen")
    rows = [{"spread": s, **dict.fromkeys(kinds, s / 2)} for s in (1.0, 1.0, 2.0)]
    found = studies.STUDIES["in-situ"].assemble(rows)
    assert found["summary"]["deployed"] == {"mean": 0.5, "std": 0.0, "least": 0.5}
    assert json.loads(json.dumps(found))["runs"] == rows


def test_the_command_writes_what_it_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ngspice: Ngspice
) -> None:
    monkeypatch.setattr(studies, "CIRCUITS", 2)
    options = ["circuit", "study", "random", "--output", str(tmp_path)]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "random.json").read_text())
    assert found["circuits"] == 2
    assert 0 < found["worst_volts"] < 1e-9
    assert found["command"] == "toreqprop circuit study random"
    assert stale(found) == []


def test_an_unknown_study_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["circuit", "study", "nonsense", "--output", str(tmp_path)])
    assert 'study must be "mnist-search"' in str(result.exception)
