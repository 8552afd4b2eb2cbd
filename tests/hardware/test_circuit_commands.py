"""``toreqprop circuit``: files, figures and sentences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from toreqprop.cli import app
from toreqprop.hardware import Ngspice, SpiceError


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small trained network's checkpoint."""
    folder = tmp_path_factory.mktemp("circuit") / "net"
    words = ["circuit", "train", "digits", "--hidden", "8", "--epochs", "2", "--json"]
    result = CliRunner().invoke(app, [*words, "--output", str(folder)])
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["test_accuracy"] > 0.7 > facts["chance"]
    return folder


def test_export_writes_a_netlist_that_simulates(
    network: Path, tmp_path: Path, ngspice: Ngspice
) -> None:
    path = tmp_path / "net.cir"
    words = ["circuit", "export", str(network), "--output", str(path), "--json"]
    facts = json.loads(CliRunner().invoke(app, words).stdout)
    assert facts["nodes"]["nodes1"] == 8
    text = path.read_text()
    assert text.count("\n") == facts["lines"]
    assert "rh1_8_in64n in64n h1_8" in text
    vectors, _ = ngspice._run(text)
    assert "v(out10)" in vectors


def test_simulate_compares_and_draws(network: Path, tmp_path: Path, ngspice: Ngspice) -> None:
    settling, voltages = tmp_path / "s.svg", tmp_path / "v.svg"
    words = ["circuit", "simulate", str(network), "--task", "digits", "--samples", "12", "--json"]
    result = CliRunner().invoke(
        app, [*words, "--settling", str(settling), "--voltages", str(voltages)]
    )
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["largest_difference"] < 1e-9
    assert facts["accuracy"] > 0.5
    assert "time / RC" in settling.read_text() or settling.stat().st_size > 10_000
    assert voltages.stat().st_size > 10_000


def test_a_missing_simulator_is_one_sentence(
    network: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOREQPROP_NGSPICE", "/nowhere/ngspice")
    for words in (["simulate", str(network)], ["train", "digits", "--simulator", "ngspice"]):
        result = CliRunner().invoke(app, ["circuit", *words])
        assert isinstance(result.exception, SpiceError)
        assert "apt-get install ngspice" in str(result.exception)


def test_what_cannot_be_drawn_is_refused(network: Path, ngspice: Ngspice) -> None:
    words = ["circuit", "simulate", str(network), "--voltages", "v.svg"]
    result = CliRunner().invoke(app, words)
    assert "give --task" in str(result.exception)
    result = CliRunner().invoke(app, [*words[:3], "--settling", "s.txt"])
    assert "s.txt" in str(result.exception) or ".txt" in str(result.exception)
