"""Hyperparameters: one readable file, found on training data alone by equal budgets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from toreqprop.bench import hyperparameters
from toreqprop.bench.hyperparameters import MODELS, searched, settings
from toreqprop.bench.rows import FAST, FAST_RADIUS, ROWS
from toreqprop.bench.tuning import Budget, best, record, search, validation_split
from toreqprop.bench.unnudged import UnnudgedEP
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
    entry = record(
        "digits", {"hidden": 16, "epochs": 1, "batch_size": 64}, {"ep": trials}, budget, "words"
    )
    assert entry["ep"]["learning_rate"] == best(trials).settings.learning_rate
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
