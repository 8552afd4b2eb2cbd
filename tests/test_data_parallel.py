"""One training in two processes: gradients, stopping, checkpoints and resuming as in one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tests import parallel_training as cases
from toreqprop import checkpoint
from toreqprop.cli.app import app
from toreqprop.data_parallel import ALONE, Group

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three clouds of points, in a CSV file."""
    random = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("table") / "clouds.csv"
    rows = ["a,b,kind"]
    for k in range(45):
        a, b = random.normal(3 * (k % 3), 1, 2)
        rows.append(f"{a:.4f},{b:.4f},k{k % 3}")
    path.write_text("\n".join(rows))
    return path


def command(table: Path, epochs: int, output: Path) -> list[str]:
    return [
        "train", str(table), "--epochs", str(epochs), "--hidden", "8", "--batch-size", "7",
        "--tol", "1e-6", "--output", str(output), "--resume", "--json",
    ]  # fmt: skip


def here(arguments: list[str]) -> dict[str, Any]:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def two(table: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What two processes found, that go on from a checkpoint of one process."""
    folder = tmp_path_factory.mktemp("two")
    here(command(table, 2, folder / "out"))
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    more = ["-m", "tests.parallel_training", str(folder), *command(table, 4, folder / "out")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, *start, *more], cwd=ROOT, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return {
        "said": json.loads(done.stdout),
        "checkpoint": checkpoint.load(folder / "out"),
        "ranks": [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in (0, 1)],
    }


@pytest.mark.parametrize("name", list(cases.networks()))
def test_gradients_are_those_of_one_process(two: dict[str, Any], name: str) -> None:
    expected = cases.gradients(*cases.networks()[name], ALONE)
    for rank in two["ranks"]:
        found = rank["gradients"][name]
        assert found.keys() == expected.keys()
        for parameter, gradient in found.items():
            error = (gradient - expected[parameter]).norm() / expected[parameter].norm()
            assert error < 1e-6, (name, parameter)


def test_training_and_its_end_are_those_of_one_process(two: dict[str, Any]) -> None:
    """Also with a last batch of one row, of which the second process has no share."""
    weights, epochs = cases.trained(ALONE)
    for rank in two["ranks"]:
        found, count = rank["trained"]
        assert count == epochs == 2
        for name, value in found.items():
            assert torch.allclose(value, weights[name], rtol=0, atol=1e-6), name
    first, second = (rank["trained"][0] for rank in two["ranks"])
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_command_resumes_in_two_processes_what_one_began(
    two: dict[str, Any], table: Path, tmp_path: Path
) -> None:
    alone = here(command(table, 4, tmp_path / "out"))
    assert two["said"]["processes"] == 2
    assert two["said"]["resumed_after"] == 2
    assert two["said"]["accuracy"] == alone["accuracy"]
    expected = checkpoint.load(tmp_path / "out")
    found = two["checkpoint"]
    assert found.about["training"] == expected.about["training"]
    for a, b in zip(found.about["history"], expected.about["history"], strict=True):
        # Adam divides by the size of a gradient, which turns rounding into more than that.
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-4)
    weights = expected.model.state_dict()
    for name, value in found.model.state_dict().items():
        assert torch.allclose(value, weights[name], rtol=1e-3, atol=1e-4), name


def test_shares_are_the_whole_batch() -> None:
    batch = torch.arange(10)
    for size in (1, 2, 3, 7, 13):
        shares = [Group(rank, size).share(batch) for rank in range(size)]
        assert sum(part for _, part in shares) == pytest.approx(1)
        assert torch.cat([rows for rows, part in shares if part]).tolist() == batch.tolist()
        assert all(len(rows) for rows, _ in shares)


def test_what_one_process_alone_can_do_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    result = CliRunner().invoke(app, ["train", "digits", "--kernel", "numpy"])
    assert "leave out torchrun" in str(result.exception)
