"""The study of depth: runs are kept, pairs are fair, and another setup's runs are refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from toreqprop.bench import depth
from toreqprop.errors import InvalidInputError


@pytest.fixture(autouse=True)
def small_data(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    y = draw.integers(0, 3, 90)
    x = (draw.normal(size=(90, 6)) + 2 * np.eye(6)[y]).astype(np.float32)
    data = SimpleNamespace(train_x=x[:60], train_y=y[:60], test_x=x[60:], test_y=y[60:], classes=3)
    monkeypatch.setattr(depth, "get", lambda task: SimpleNamespace(load=lambda seed, full: data))


SETUP = depth.Setup(("mnist",), ("looped", "2"), seeds=1, width=12, epochs=15, batch=20, rate=1e-2)


def test_runs_are_kept_and_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "depth.json"
    runs = depth.measure(SETUP, path)
    assert [(r.network, r.seed) for r in runs] == [("looped", 42), ("2", 42)]
    # Three classes: a third is chance, on both sides.
    assert min(min(r.accuracy, r.twin) for r in runs) > 60
    assert all(0 < r.reach <= 1 and r.steps[0] >= 1 and r.last > 0.9 for r in runs)
    monkeypatch.setattr(depth, "run", lambda *_: pytest.fail("a run was repeated"))
    assert depth.measure(SETUP, path) == runs
    table = depth.render_markdown(SETUP, runs)
    assert table.count("\n") == 3
    assert f"{runs[1].accuracy:.2f}" in table


@pytest.mark.parametrize("content", ["", "[]", "{", '{"setup": {}, "runs": [{}]}'])
def test_a_damaged_file_is_refused_in_a_sentence(tmp_path: Path, content: str) -> None:
    path = tmp_path / "depth.json"
    path.write_text(content)
    with pytest.raises(InvalidInputError, match="remove it"):
        depth.measure(SETUP, path)


def test_runs_of_another_setup_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "depth.json"
    one = depth.Setup(("mnist",), ("2",), seeds=1, width=12, epochs=1, batch=20)
    depth.measure(one, path)
    other = depth.Setup(("mnist",), ("2",), seeds=1, width=12, epochs=2, batch=20)
    with pytest.raises(InvalidInputError, match="another setup"):
        depth.measure(other, path)
