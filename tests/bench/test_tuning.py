"""Hyperparameters: one readable file, found on training data alone by equal budgets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from toreqprop.bench import hyperparameters
from toreqprop.bench.hyperparameters import MODELS, searched, settings
from toreqprop.bench.rows import FAST, FAST_RADIUS, ROWS, base
from toreqprop.bench.tuning import Budget, best, record, search, validation_split
from toreqprop.bench.unnudged import UnnudgedEP
from toreqprop.cli import app
from toreqprop.errors import InvalidInputError
from toreqprop.gradients import CenteredEP
from toreqprop.models import LoopedMLP
from toreqprop.tasks import get


@pytest.mark.parametrize("task", ROWS)
def test_every_row_has_settings_and_the_search_behind_them(task: str) -> None:
    chosen = settings(task, full=False)
    entry = hyperparameters.read()["tasks"][task]
    for model in searched(task):
        tried = entry["search"][model]["tried"]
        assert len(tried) == entry["search"]["trials"]  # the same budget for both
        top = max(tried, key=lambda trial: np.mean(trial["accuracies"]))
        for name, value in entry[model].items():
            assert top[name] == value  # what is used is what did best
        assert chosen.model(model).learning_rate == entry[model]["learning_rate"]


@pytest.mark.parametrize("row", FAST)
def test_fast_rows_have_the_radius_of_the_speed_table(row: str) -> None:
    tried = hyperparameters.read()["tasks"][row]["search"]["ep"]["tried"]
    assert {trial["radius"] for trial in tried} == {FAST_RADIUS}


def test_validation_data_are_training_data() -> None:
    data, split = get("digits").load(1000, False), validation_split("digits", False, 1000)
    # Pixels are whole numbers, so rounding undoes the standardisation exactly.
    raw = {row.tobytes() for row in np.rint(data.standardiser.invert(data.train_x)).astype(int)}
    held = np.rint(split.standardiser.invert(split.test_x)).astype(int)
    assert len(split.train_y) + len(split.test_y) == len(data.train_y)
    assert all(row.tobytes() in raw for row in held)


def test_a_search_starts_from_the_settings_in_use_and_is_reproducible() -> None:
    start = replace(settings("digits", full=False), epochs=1, hidden=16)
    budget = Budget(trials=3, seed=1)
    for model in MODELS:
        trials = search("digits", model, start, budget)
        assert trials[0].settings == start.model(model)
        assert len({trial.settings for trial in trials}) == 3
        assert trials == search("digits", model, start, budget)
        assert best(trials).mean == max(trial.mean for trial in trials)
    entry = record("digits", {"hidden": 16, "batch_size": 64}, 1, {"ep": trials}, budget, "words")
    assert entry["ep"]["learning_rate"] == best(trials).settings.learning_rate
    assert entry["search"]["epochs"] == 1
    assert entry["search"]["ep"]["best"] == round(best(trials).mean, 3)


def test_the_file_survives_being_written(tmp_path: Path) -> None:
    content = hyperparameters.read()
    hyperparameters.write(tmp_path / "file.json", content)
    assert hyperparameters.read(tmp_path / "file.json") == content


def test_a_task_without_settings_is_named() -> None:
    with pytest.raises(InvalidInputError, match="no hyperparameters for 'mnist'"):
        settings("mnist", False, {"tasks": {}})
    with pytest.raises(InvalidInputError, match="trials must be >= 1"):
        Budget(trials=0)


def test_without_a_nudge_the_hidden_gradient_is_exactly_zero() -> None:
    x, y = torch.randn(20, 6), torch.randint(0, 3, (20,))
    for estimator, moves in ((CenteredEP(0.2), True), (UnnudgedEP(0.2), False)):
        model = LoopedMLP(6, 12, 3, gradient=estimator)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        hidden = [p.grad for n, p in model.named_parameters() if not n.startswith("readout")]
        assert any(bool((g != 0).any()) for g in hidden if g is not None) == moves
        assert model.readout.weight.grad is not None
        assert bool((model.readout.weight.grad != 0).any())


def test_a_row_that_varies_the_model_has_the_baseline_of_its_task() -> None:
    for row in ROWS:
        mine, theirs = settings(row, False), settings(base(row), False)
        assert replace(mine, ep=theirs.ep) == theirs


def tune(*arguments: str) -> str:
    """What the command says to a request it refuses."""
    result = CliRunner().invoke(app, ["tune", *arguments, "--trials", "1"])
    assert isinstance(result.exception, InvalidInputError), result.output
    return str(result.exception)


def test_bad_requests_are_refused() -> None:
    assert "no larger data set for 'digits-fast'" in tune("digits-fast", "--full-data")
    assert "tune both at once" in tune("digits-fast", "--epochs", "2")


def test_a_file_from_before_a_row_gets_its_entry(tmp_path: Path) -> None:
    content = hyperparameters.read()
    del content["tasks"]["digits-fast"]
    content["tasks"]["digits"]["epochs"] = 1
    path = tmp_path / "old.json"
    hyperparameters.write(path, content)
    arguments = ["tune", "digits-fast", "--trials", "1", "--jobs", "1", "--output", str(path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    entry = hyperparameters.read(path)["tasks"]["digits-fast"]
    assert entry["search"]["epochs"] == 1
    assert entry["ep"]["radius"] == FAST_RADIUS
    assert "epochs" not in entry
