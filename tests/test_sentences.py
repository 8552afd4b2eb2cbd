"""What the program says of what it cannot do: the cause, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from toreqprop.bench import hyperparameters
from toreqprop.cli import app
from toreqprop.errors import InvalidInputError, TorEqPropError


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def refuse(*arguments: object) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, TorEqPropError), (result.output, result.exception)
    assert "\n" not in str(result.exception)
    return str(result.exception)


@pytest.mark.parametrize(
    "command",
    [
        ["train", "digits", "--output", ""],
        ["train", "digits", "--output="],
        ["train", ""],
        ["benchmark", "--output", ""],
        ["verify", "--track", "22", "--output", " "],
        ["sweep-beta", "--output", ""],
        ["tune", "digits", "--output", ""],
        ["plot", "relaxation", "--output", ""],
    ],
    ids=" ".join,
)
def test_an_empty_argument_is_no_folder(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "empty: leave it out or give it a value" in refuse(*command)
    assert not list(tmp_path.iterdir())


PLOTS = ("relaxation", "trajectories", "alignment", "spectrum", "training")


DRAWING = [*(["plot", kind] for kind in PLOTS), ["sweep-beta"], ["memory"]]


@pytest.mark.parametrize("command", DRAWING, ids=" ".join)
def test_without_matplotlib_nothing_is_measured_for_a_figure(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(*arguments: Any, **options: Any) -> None:
        raise AssertionError("measured before it was refused")

    monkeypatch.setattr("toreqprop.plots.style.find_spec", lambda name: None)
    monkeypatch.setattr("toreqprop.tasks.get", measured)
    monkeypatch.setattr("toreqprop.bench.beta_sweep.curve", measured)
    monkeypatch.setattr("toreqprop.bench.memory.point", measured)
    monkeypatch.chdir(tmp_path)
    assert 'Figures need matplotlib: run `pip install "toreqprop[bench]"`.' in refuse(*command)


@pytest.mark.parametrize("value", ["-1", "nan", "inf"])
def test_a_weight_decay_that_is_none_is_refused(value: str) -> None:
    said = refuse("train", "digits", "--weight-decay", value, "--epochs", 1)
    assert said.startswith("weight_decay must be >= 0, got ")


@pytest.mark.parametrize("option", ["--epochs", "--batch-size", "--seed"])
def test_negative_counts_are_refused(option: str) -> None:
    assert "must be" in refuse("train", "digits", option, "-3")


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf"])
@pytest.mark.parametrize(
    "option", ["--epochs", "--hidden", "--batch-size", "--beta", "--radius", "--learning-rate"]
)
def test_the_numpy_reference_refuses_alike(option: str, value: str) -> None:
    result = run("train", "digits", "--kernel", "numpy", option, value)
    if result.exit_code == 2:  # no whole number at all
        assert "Invalid value" in result.output
    else:
        assert isinstance(result.exception, InvalidInputError), result.exception
        assert " must be >" in str(result.exception)


def test_a_data_folder_that_is_not_there(tmp_path: Path) -> None:
    assert "does not exist" in refuse("train", "digits", "--data-dir", tmp_path / "nowhere")


@pytest.mark.parametrize(
    "command",
    [
        ["certify", "--batch", "-1"],
        ["certify", "--epochs", "-1"],
        ["plot", "relaxation", "--batch", "0"],
        ["plot", "alignment", "--batch", "-1"],
        ["plot", "training", "--epochs", "-1"],
    ],
    ids=" ".join,
)
def test_counts_below_the_least_are_refused(command: list[str]) -> None:
    result = run(*command)
    assert result.exit_code == 2
    assert "Invalid value" in result.output


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", "is not JSON"),
        (b"[1", "is not JSON"),
        (b"[]", "holds no hyperparameters"),
        (b'{"rows": []}', "holds no hyperparameters"),
        (b'{"rows": {"digits": 3}}', "are not complete"),
        (b'{"rows": {"digits": {"ep": 1}}}', "are not complete"),
    ],
)
def test_a_damaged_file_of_hyperparameters(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    command = ["benchmark", "--tasks", "digits", "--seeds", 1, "--output", tmp_path / "out"]
    assert message in refuse(*command, "--hyperparameters", path)


@pytest.mark.parametrize(
    ("part", "setting", "value"),
    [
        ("ep", "beta", 0),
        ("backprop", "gain", 0),
        ("backprop", "learning_rate", "fast"),
        ("ep", "weight_decay", -1),
        ("ep", "schedule", "slow"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(part: str, setting: str, value: Any) -> None:
    content = hyperparameters.read()
    content["rows"]["digits"][part][setting] = value
    with pytest.raises(InvalidInputError, match=f"of 'digits' cannot be used: {setting} must be"):
        hyperparameters.settings("digits", content=content)


def test_an_altered_file_is_named_when_nothing_else_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from toreqprop.tasks import files

    monkeypatch.setitem(files.COLLECTIONS, "mnist", replace(files.COLLECTIONS["mnist"], sources=()))
    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path / "cache")
    for file in files.COLLECTIONS["mnist"].files:
        (tmp_path / file.name).write_bytes(b"altered")
    said = refuse("train", "mnist", "--data-dir", tmp_path)
    first = tmp_path / files.COLLECTIONS["mnist"].files[0].name
    assert said.startswith(f"{first}, ")
    assert "truncated or altered, by the checksum; replace it by the original" in said
    assert "No source" not in said


def test_a_search_without_processes_is_refused() -> None:
    assert "--jobs must be" in refuse("tune", "digits", "--jobs", 0)
