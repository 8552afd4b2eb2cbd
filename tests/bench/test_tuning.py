"""Settings: one readable file, found on training data alone by equal budgets."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import Result
from typer.testing import CliRunner

from toreqprop.bench import hyperparameters, rows
from toreqprop.bench.hyperparameters import searched, settings, starting
from toreqprop.bench.rows import ROWS, row
from toreqprop.bench.run import Run, build
from toreqprop.bench.settings import ModelSettings
from toreqprop.bench.tuning import Budget, Trial, best, search, second_round, validation_split
from toreqprop.bench.tuning_journal import Journal
from toreqprop.bench.unnudged import UnnudgedEP
from toreqprop.cli import app
from toreqprop.errors import InvalidInputError
from toreqprop.gradients import CenteredEP
from toreqprop.models import LoopedMLP
from toreqprop.tasks import get

SMALL = replace(row("digits"), hidden=16, epochs=1, splits=1)
TUNED = [of.name for of in ROWS if of.name in hyperparameters.read()["rows"]]


def test_the_tasks_of_the_report_are_tuned() -> None:
    assert {"digits", "mnist", "fashion", "cartpole", "acrobot"} <= set(TUNED)


@pytest.mark.parametrize("name", TUNED)
def test_every_row_has_the_search_behind_its_settings(name: str) -> None:
    chosen, entry = settings(name), hyperparameters.read()["rows"][name]
    arms = searched(row(name))
    points = {
        arm: {
            (t["learning_rate"], t["weight_decay"], t.get("gain"))
            for t in entry["search"][arm]["tried"]
        }
        for arm in arms
    }
    geared = {arm for arm, found in points.items() if len({gain for *_, gain in found}) > 1}
    # The same budget for every arm, and whatever did best in one was tried in all.
    counts = [len(entry["search"][arm]["tried"]) for arm in arms]
    assert min(counts) >= entry["search"]["trials"]
    assert len(set(counts)) == 1 or "tried again" in entry["search"]["note"]
    for arm in arms:
        best_here = tuple(entry[arm].get(key) for key in ("learning_rate", "weight_decay", "gain"))
        for other, found in points.items():
            # A stack's readout has no gain: it is compared without.
            known = 3 if {arm, other} <= geared else 2
            assert best_here[:known] in {point[:known] for point in found}
        tried = [t for t in entry["search"][arm]["tried"] if t.get("certified", True)]
        top = max(tried, key=lambda trial: np.mean(trial["accuracies"]))
        for key, value in entry[arm].items():
            assert top[key] == value  # what is used is what did best
        assert chosen.model(arm).learning_rate == entry[arm]["learning_rate"]


def test_validation_data_are_training_data() -> None:
    data, split = get("digits").load(1000, False), validation_split(row("digits"), 1000)
    # Pixels are whole numbers, so rounding undoes the standardisation exactly.
    raw = {pixels.tobytes() for pixels in _pixels(data.standardiser.invert(data.train_x))}
    held = _pixels(split.standardiser.invert(split.test_x))
    assert len(split.train_y) + len(split.test_y) == len(data.train_y)
    assert all(pixels.tobytes() in raw for pixels in held)
    tested = {p.tobytes() for p in _pixels(data.standardiser.invert(data.test_x))}
    assert not tested & raw


def _pixels(raw: np.ndarray) -> np.ndarray:
    return np.rint(raw).astype(int)


def test_a_search_is_reproducible_and_the_same_for_every_arm() -> None:
    budget = Budget(trials=3, seed=1)
    found = {arm: search(SMALL, arm, budget) for arm in searched(SMALL)}
    assert found["ep"] == search(SMALL, "ep", budget)
    points = {
        tuple((t.settings.learning_rate, t.settings.gain) for t in trials)
        for trials in found.values()
    }
    assert len(points) == 1
    assert found["ep"][0].settings == starting(SMALL).ep
    assert len({(t.settings.beta, t.settings.tol) for t in found["ep"]}) == 3
    assert all(t.settings.beta is None and t.settings.tol is None for t in found["backprop"])
    assert all(t.cosine is not None for t in found["ep"])


def test_a_trial_whose_certificates_fail_is_never_chosen() -> None:
    poor, good = (Trial(ModelSettings(rate, 0.1), (50.0 + rate,)) for rate in (0.1, 0.2))
    assert best([poor, good]) is good
    assert best([poor, replace(good, certified=False)]) is poor
    with pytest.raises(InvalidInputError, match="No trial passed its certificates"):
        best([replace(poor, certified=False)])


def test_in_the_second_round_every_arm_tries_the_best_of_the_others() -> None:
    found = {
        arm: [Trial(ModelSettings(rate, 0.1), (99.0,)), Trial(ModelSettings(1.0, 0.1), (9.0,))]
        for arm, rate in zip(searched(SMALL), (0.1, 0.2, 0.3), strict=True)
    }
    asked = second_round(SMALL, found)
    assert [s.learning_rate for s in asked["ep"]] == [0.2, 0.3]
    assert [s.learning_rate for s in asked["shallow"]] == [0.1, 0.2]


def test_ep_tries_the_best_of_the_others_at_its_own_nudge_and_tolerance() -> None:
    plain = [Trial(ModelSettings(0.2, 0.1), (99.0,))]
    refused = Trial(ModelSettings(0.4, 0.1, beta=1.0, tol=0.1), (99.5,), certified=False)
    passed = Trial(ModelSettings(0.1, 0.1, beta=0.01, tol=1e-3), (98.0,))
    asked = second_round(SMALL, {"ep": [refused, passed], "backprop": plain, "shallow": plain})
    assert [(s.learning_rate, s.beta, s.tol) for s in asked["ep"]] == [(0.2, 0.01, 1e-3)] * 2
    assert [(s.learning_rate, s.beta, s.tol) for s in asked["backprop"]] == [
        (0.1, None, None),
        (0.2, None, None),
    ]


def test_a_search_begins_with_what_the_row_used_before() -> None:
    before = ModelSettings(0.004, 0.2, gain=1.5, beta=0.002, tol=2e-4)
    found = search(SMALL, "ep", Budget(trials=2), before=before)
    assert [t.settings for t in found] == [starting(SMALL).ep, before]


def test_the_arms_are_what_they_are_called() -> None:
    chosen, data = starting(SMALL), get("digits").load(0, False)
    built = {arm: build(Run("x", arm, 0, chosen), data, chosen.model(arm)) for arm in chosen.arms}
    count = {arm: sum(p.numel() for p in net.parameters()) for arm, net in built.items()}
    assert count["ep"] == count["implicit"] == count["backprop"] - SMALL.hidden  # one bias more
    assert count["shallow"] == count["ep"] - SMALL.hidden**2
    assert isinstance(built["ep"], LoopedMLP)
    assert built["ep"].bound == "tight"


def test_the_file_survives_being_written(tmp_path: Path) -> None:
    content = hyperparameters.read()
    hyperparameters.write(tmp_path / "file.json", content)
    assert hyperparameters.read(tmp_path / "file.json") == content


def test_a_row_without_settings_is_named() -> None:
    with pytest.raises(InvalidInputError, match="no hyperparameters for 'mnist'"):
        settings("mnist", content={"rows": {}})
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


def test_a_new_row_is_one_entry_and_tune_creates_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "ROWS", (*ROWS, replace(SMALL, name="new")))
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"rows": {}}))
    monkeypatch.setattr("toreqprop.cli.tune.perform_all", _here)
    arguments = ["tune", "new", "--trials", "1", "--output", str(path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    found = hyperparameters.read(path)
    assert settings("new", content=found).hidden == SMALL.hidden
    assert found["rows"]["new"]["search"]["made"]["command"] == "toreqprop tune new --trials 1"


def test_a_stopped_search_goes_on_with_what_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped within the first of two rows, the second command ends in the same settings."""
    names = ["one", "two"]
    monkeypatch.setattr(rows, "ROWS", (*ROWS, *(replace(SMALL, name=name) for name in names)))
    monkeypatch.setattr("toreqprop.cli.tune.perform_all", _here)

    def tuned(folder: str) -> Path:
        path = tmp_path / folder / "settings.json"
        path.parent.mkdir()
        path.write_text(json.dumps({"rows": {}}))
        return path

    def run(path: Path) -> Result:
        return CliRunner().invoke(app, ["tune", *names, "--trials", "1", "--output", str(path)])

    def found(path: Path) -> dict[str, Any]:
        content = hyperparameters.read(path)["rows"]
        for entry in content.values():
            del entry["search"]["made"]
        return content

    whole, stopped = tuned("whole"), tuned("stopped")
    assert run(whole).exit_code == 0
    real, calls = Journal.add, []

    def add(journal: Journal, *news: Any) -> None:
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(news)
        real(journal, *news)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "add", add)
        ended = run(stopped)
    assert ended.exit_code == 130
    assert "2 finished searches are saved" in ended.output
    again = run(stopped)
    assert again.exit_code == 0, again.output
    assert found(stopped) == found(whole)
    assert [p.name for p in stopped.parent.iterdir()] == ["settings.json"]


def _here(work, jobs, on_news, on_done, **rest) -> None:  # type: ignore[no-untyped-def]
    """The work in this process: a row of a test does not travel."""
    from concurrent.futures import Future

    for key, (function, arguments) in work.items():
        future: Future[list[Trial]] = Future()
        future.set_result(function(*arguments))
        on_done(key, future)
