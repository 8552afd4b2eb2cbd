"""The convolutional example and benchmark, in small."""

from __future__ import annotations

import json
import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import toreqprop.tasks
from toreqprop.bench.convolutional import (
    METHODS,
    ConvolutionalSettings,
    assembled,
    measurements,
)
from toreqprop.evidence.study import run_study, stale
from toreqprop.tasks import Dataset, get

ROOT = Path(__file__).parent.parent


def enlarged_digits(seed: int, full: bool) -> Dataset:
    """Digits of 8x8 pixels drawn as 28x28: learnable, and at hand without any file."""
    data = get("digits").load(seed, full)

    def enlarge(rows: np.ndarray) -> np.ndarray:
        images = np.kron(rows.reshape(-1, 8, 8), np.ones((1, 3, 3), np.float32))
        return np.pad(images, ((0, 0), (2, 2), (2, 2))).reshape(len(rows), -1).astype(np.float32)

    return replace(data, train_x=enlarge(data.train_x), test_x=enlarge(data.test_x))


def test_the_example_runs_and_learns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(toreqprop.tasks, "get", lambda name: SimpleNamespace(load=enlarged_digits))
    monkeypatch.setattr("sys.argv", ["convolutional_mnist.py", "--fast"])
    outcome = runpy.run_path(str(ROOT / "examples" / "convolutional_mnist.py"))
    printed = capsys.readouterr().out
    assert "PASS" in printed
    assert "accuracy on 599 test images" in printed
    assert outcome["right"] > 0.5
    assert outcome["data"].chance < 0.2


def test_the_study_measures_both_methods_alike(tmp_path: Path) -> None:
    settings = ConvolutionalSettings(channels=(4, 6), epochs=2, learning_rate=2e-2)
    path = tmp_path / "found" / "convolutional.json"
    jobs = measurements(["digits"], METHODS, [0], settings, full=False, timed=True)
    content = run_study(jobs, assembled, command="toreqprop convolutional", path=path)
    assert json.loads(path.read_text()) == content
    assert stale(content) == []
    runs = {r["method"]: r for r in content["runs"]}
    times = content["step_times"]
    assert times["ratio"] == times["milliseconds"]["ep"] / times["milliseconds"]["backprop"]
    assert times["free_steps"] >= 1
    assert times["nudged_steps"] >= 1
    assert runs["ep"]["parameters"] == runs["backprop"]["parameters"]
    for measured in runs.values():
        assert measured["accuracy"] > 3 * measured["chance"]
        assert len(measured["epochs"]) == 2
        assert measured["timing"]["cpu_seconds"] > 0
    assert runs["ep"]["certificate"]["ok"], runs["ep"]["certificate"]["verdict"]
    assert runs["backprop"]["certificate"] is None
    again = run_study(jobs, assembled, command="toreqprop convolutional", path=path)
    assert again["timing"]["reused"] == 3
    assert again["runs"] == content["runs"]


def test_settings_build_networks_of_equal_size() -> None:
    settings = ConvolutionalSettings()
    assert len(settings.pooling) == len(settings.channels)
    ours, theirs = (settings.build(m, (1, 28, 28), 10) for m in METHODS)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
