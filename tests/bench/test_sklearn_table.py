"""The comparison with scikit-learn's networks: same folds for both, and it can fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.tree import DecisionTreeClassifier
from typer.testing import CliRunner

from toreqprop.bench import sklearn_table as bench
from toreqprop.cli import app
from toreqprop.errors import InvalidInputError
from toreqprop.evidence.study import stale

SEEN: list[tuple[Any, bytes]] = []


class Recorder(ClassifierMixin, BaseEstimator):
    """Predicts the commonest label and notes what it was given."""

    def __init__(self, random_state: int | None = None) -> None:
        self.random_state = random_state

    def fit(self, X: np.ndarray, y: np.ndarray) -> Recorder:
        SEEN.append((self.random_state, X.tobytes() + y.tobytes()))
        self.classes_, counts = np.unique(y, return_counts=True)
        self.commonest_ = self.classes_[counts.argmax()]
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.full(len(X), self.commonest_)


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Both rows of one data set, with these models in the places of the real ones."""

    def rows(ours: Any, theirs: Any) -> list[dict[str, Any]]:
        monkeypatch.setitem(bench.MODELS, "accuracy", (ours, theirs))
        jobs = bench.measurements(bench.select(["wine"]), (1, 2))
        return [job.perform(lambda news: None)["found"] for job in jobs]

    return rows


def test_both_get_the_same_folds_and_seeds(compare: Any) -> None:
    SEEN.clear()
    rows = compare(Recorder, Recorder)
    assert [row["features"] for row in rows] == ["standardised", "raw"]
    half = 2 * bench.FOLDS
    assert len(SEEN) == 4 * half
    for start in (0, 2 * half):
        assert SEEN[start : start + half] == SEEN[start + half : start + 2 * half]
    assert len({content for _, content in SEEN[:half]}) == half
    assert all(row["gap"] == 0 and row["passed"] for row in rows)


def test_the_comparison_fails_where_it_should(compare: Any) -> None:
    worse = compare(Recorder, DecisionTreeClassifier)
    assert all(row["gap"] < -0.3 and not row["passed"] for row in worse)
    better = compare(DecisionTreeClassifier, Recorder)
    assert all(row["passed"] for row in better)
    assert worse[0]["our_mean"] == np.mean(worse[0]["ours"])


def test_the_bound_is_a_point_of_accuracy_or_three_hundredths() -> None:
    def row(score: Any, gap: float) -> bool:
        return bench.Comparison("x", "raw", score, (0.9 + gap,), (0.9,)).passed

    assert row("accuracy", -0.01)
    assert not row("accuracy", -0.0101)
    assert row("R²", -0.03)
    assert not row("R²", -0.0301)


def test_unknown_data_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="choose digits"):
        bench.select(["mnist"])


@pytest.mark.parametrize(("rival", "code"), [(Recorder, 0), (DummyClassifier, 1)])
def test_the_command_writes_and_exits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rival: Any, code: int
) -> None:
    ours = Recorder if code == 0 else AlwaysWrong
    monkeypatch.setitem(bench.MODELS, "accuracy", (ours, rival))
    options = ["sklearn", "iris", "--seeds", "1", "--output", str(tmp_path), "--json"]
    result = CliRunner().invoke(app, options)
    assert result.exit_code == code, result.output
    report = json.loads((tmp_path / "sklearn.json").read_text())
    assert report == json.loads(result.stdout)
    assert report["passed"] is (code == 0)
    assert [c["data"] for c in report["comparisons"]] == ["iris", "iris"]
    assert {"commit", "command", "environment", "timing"} <= set(report)
    assert stale(report) == []
    shown = CliRunner().invoke(app, options[:-1])
    assert ("PASS" if code == 0 else "FAIL") in shown.output


class AlwaysWrong(Recorder):
    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.full(len(X), -1)
