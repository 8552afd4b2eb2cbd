"""The program as a user runs it."""

from __future__ import annotations

import atexit
import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from toreqprop.bench import beta_sweep
from toreqprop.cli import app, main

run = CliRunner().invoke


def test_help_lists_the_commands() -> None:
    result = run(app, ["--help"])
    assert result.exit_code == 0
    for command in ("certify", "data", "estimators", "info", "sweep-beta"):
        assert command in result.output


def test_info_as_json() -> None:
    facts = json.loads(run(app, ["info", "--json"]).output)
    assert facts["torch"].startswith("2.")


def test_certify_passes_and_fails_with_its_exit_code() -> None:
    common = ["certify", "--json", "--hidden", "16", "--epochs", "1", "--batch", "16"]
    good = run(app, common)
    assert good.exit_code == 0, good.output
    assert json.loads(good.output)["ok"] is True
    bad = run(app, [*common, "--gradient", "one_sided", "--beta", "3"])
    assert bad.exit_code == 1
    assert "BETA" in json.loads(bad.output)["reasons"]
    unrolled = run(app, [*common, "--gradient", "unrolled"])
    assert unrolled.exit_code == 1


def test_certify_prints_a_verdict_for_people() -> None:
    result = run(app, ["certify", "--hidden", "16", "--epochs", "1", "--batch", "16"])
    assert "PASS" in result.output
    assert "input.weight" in result.output


def test_what_is_imported_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The garbage of everything younger is still looked for, and of all of it at some time."""
    ends: list[Any] = []
    monkeypatch.setattr(atexit, "register", ends.append)
    monkeypatch.setattr(sys, "argv", ["toreqprop", "--version"])
    before = gc.get_threshold()
    try:
        gc.set_threshold(700, 10, 10)
        with pytest.raises(SystemExit):
            main()
        assert gc.get_threshold() == (700, 10, 100)
        assert gc.freeze in ends
    finally:
        gc.set_threshold(*before)


def test_a_mistake_ends_in_one_sentence() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "toreqprop", "certify", "--gradient", "nonsense"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert "choose one of" in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def test_beta_sweep_measures_the_orders_and_draws(tmp_path: Path) -> None:
    betas = (1e-3, 10**-2.5, 1e-2, 10**-1.5, 1e-1)
    sweep = beta_sweep.sweep_beta(betas=betas)
    assert sweep.slope("one-sided", 1e-3, 1e-1) == pytest.approx(1, abs=0.15)
    assert sweep.slope("centred", 1e-3, 1e-1) == pytest.approx(2, abs=0.15)
    best = sweep.floor("holomorphic, 8 points", "float64").error
    assert best < 1e-2 * sweep.floor("centred", "float64").error
    # float32 follows: the difference of the phases is carried, so a weak nudge costs no digits
    assert sweep.floor("centred", "float32").error < 2 * sweep.floor("centred", "float64").error
    paths = beta_sweep.draw(sweep, tmp_path)
    assert {p.suffix for p in paths} == {".svg", ".png"}
    assert all(p.stat().st_size > 5000 for p in paths)


@pytest.mark.parametrize(
    "options",
    [
        ["--kernel", "auto"],
        ["--kernel", "torch", "--gradient", "holomorphic", "--beta", "0.1"],
        ["--kernel", "numpy", "--batch-size", "32"],
        ["--model", "hopfield", "--solver", "gauss_seidel"],
        ["--model", "backprop"],
    ],
    ids=" ".join,
)
def test_train_learns(options: list[str]) -> None:
    command = ["train", "digits", "--hidden", "32", "--epochs", "6", "--learning-rate"]
    rate = "0.3" if "numpy" in options else "0.005"
    result = run(app, [*command, rate, "--json", *options])
    assert result.exit_code == 0, result.output
    found = json.loads(result.output[result.output.index("{") :])
    assert found["accuracy"] > 0.85
    assert found["chance"] < 0.15


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        (["--model", "other"], "choose looped"),
        (["--solver", "other"], "choose one of"),
        (["--kernel", "numpy", "--model", "backprop"], "looped"),
    ],
)
def test_train_mistakes(options: list[str], advice: str) -> None:
    result = run(app, ["train", "digits", *options])
    assert advice in str(result.exception)
