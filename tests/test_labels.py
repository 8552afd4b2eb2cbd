"""Labels come out of a model as they went in."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from toreqprop.cli import app

SMALL = ["--hidden", "12", "--kernel", "torch", "--learning-rate", "0.05", "--epochs", "20"]


def invoke(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def test_labels_that_look_like_one_number_are_three_classes(tmp_path: Path) -> None:
    labels = ["007", "07", "7"]
    rows = [f"{5 * k},{-5 * k},{label}" for k, label in enumerate(labels) for _ in range(10)]
    (tmp_path / "agents.csv").write_text("a,b,agent\n" + "\n".join(rows) + "\n")
    invoke("train", tmp_path / "agents.csv", *SMALL, "--output", tmp_path / "run")
    predicted = invoke("predict", tmp_path / "run", tmp_path / "agents.csv").split()[1:]
    assert predicted == [row.rpartition(",")[2] for row in rows]


def test_large_integers_are_not_merged(tmp_path: Path) -> None:
    labels = np.repeat(np.array([2**63 - 2, 2**63 - 1, 2**63], np.uint64), 10)
    x = np.repeat([[0.0, 9.0], [9.0, 0.0], [5.0, 5.0]], 10, axis=0)
    np.savez(tmp_path / "large.npz", x=x, y=labels)
    invoke("train", tmp_path / "large.npz", *SMALL, "--output", tmp_path / "run")
    found = json.loads(invoke("predict", tmp_path / "run", tmp_path / "large.npz", "--json"))
    assert [row["y"] for row in found] == labels.tolist()


def test_a_task_and_a_file_name_a_class_alike(tmp_path: Path) -> None:
    """A checkpoint of a task has numbers as labels, a CSV file has text."""
    small = ["--hidden", "12", "--kernel", "torch", "--epochs", "2"]
    invoke("train", "digits", *small, "--output", tmp_path / "run")
    answers = invoke("predict", tmp_path / "run", "digits").split()[1:5]
    header = ",".join([*(f"p{k}" for k in range(64)), "y"])
    rows = [",".join(["1"] * 64 + [answer]) for answer in answers]
    (tmp_path / "rows.csv").write_text("\n".join([header, *rows]) + "\n")
    invoke("evaluate", tmp_path / "run", tmp_path / "rows.csv")
