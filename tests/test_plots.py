"""Pictures: the data they show is right, and every figure has what a reader needs."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import toreqprop as teq
from toreqprop import plots
from toreqprop.bench.relaxation import relaxation_curves
from toreqprop.cli import app
from toreqprop.models import EquilibriumModel
from toreqprop.training import TrainingConfig, fit

KINDS = ("relaxation", "trajectories", "alignment", "spectrum", "training")


def network(**options: Any) -> teq.LoopedMLP:
    torch.manual_seed(0)
    options = {"radius": 0.9, **options}
    model = teq.LoopedMLP(6, 12, 3, **options)
    with torch.no_grad():  # recurrence that matters
        next(p for n, p in model.named_parameters() if n.startswith("recurrent")).mul_(20)
    return model


def batch(count: int = 8) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(count, 6), torch.arange(count) % 3


def every_label(figure: Any) -> list[str]:
    return [text for a in figure.axes for text in (a.get_xlabel(), a.get_ylabel())]


def test_relaxation_data_is_what_the_solver_did() -> None:
    model, (x, y) = network(), batch()
    data = plots.relaxation_data(model, x, y)
    free, up, down = data["phases"]
    assert [p["phase"] for p in data["phases"]] == ["free", "nudged +β", "nudged −β"]
    assert (up["beta"], down["beta"]) == model.gradient.betas
    for phase in data["phases"]:
        worst = phase["residual"]["worst"]
        assert phase["steps"] == len(worst) == len(phase["energy"])
        assert worst[-1] <= 1e-9 < worst[0]
        assert all(b <= a + 1e-12 for a, b in pairwise(phase["energy"]))
    ratios = [b / a for a, b in pairwise(free["residual"]["worst"])]
    assert max(ratios) < 1
    figure = plots.relaxation(model, x, y)
    assert every_label(figure)[:2] == ["relaxation step", "relative residual"]
    assert len(figure.axes) == 2


def test_a_field_without_energy_has_no_energy_panel() -> None:
    x, y = batch()
    figure = plots.relaxation(network(symmetric=False), x, y)
    assert len(figure.axes) == 1


def test_the_benchmark_draws_the_same_curves() -> None:
    model, (x, y) = network(), batch()
    found = relaxation_curves(model, x, y)
    data = plots.relaxation_data(model, x, y, tol=1e-6)
    for phase, stored in zip(("free", "nudged"), data["phases"], strict=False):
        # float32 against float64, both relative to the same scale
        assert found[phase]["worst"][:5] == pytest.approx(stored["residual"]["worst"][:5], rel=0.05)


def test_trajectories_meet_at_the_free_equilibrium_and_keep_distances() -> None:
    model, (x, y) = network(), batch()
    data = plots.trajectory_data(model, x, y, sample=2)
    free, up, down = (torch.tensor(p["points"]) for p in data["phases"])
    for point in (free[-1], up[0], down[0]):
        assert float(point.norm()) < 1e-5
    # the two nudges push in opposite directions
    assert float(up[-1] @ down[-1]) < 0
    assert 0.9 < sum(data["explained"]) <= 1 + 1e-9
    phases = plots.trace_phases(model, x[2:3], y[2:3], tol=1e-6, keep_states=True)
    moved = (phases[1].solution.state[0] - phases[0].solution.state[0]).norm()
    # A projection never lengthens, and loses little where two directions explain most.
    assert 0.9 * float(moved) <= float(up[-1].norm()) <= float(moved) * (1 + 1e-4)
    with pytest.raises(teq.InvalidInputError, match=r"sample must be in 0\.\.7"):
        plots.trajectories(model, x, y, sample=8)


@pytest.mark.parametrize("kind", [teq.LoopedMLP, teq.HopfieldMLP])
def test_figures_of_any_model(kind: type[EquilibriumModel]) -> None:
    model, x, y = kind.example()
    for figure in (plots.relaxation(model, x, y), plots.trajectories(model, x, y)):
        assert all(every_label(figure))


def test_alignment_shows_angles() -> None:
    model, (x, y) = network(), batch()
    good = teq.certify(model, x, y)
    model.gradient = teq.OneSidedEP(beta=1.0)
    bad = teq.certify(model, x, y)
    data = plots.alignment_data({"good": good, "bad": bad})
    for name, found in (("good", good), ("bad", bad)):
        for shown, tensor in zip(data[name]["tensors"], found.tensors, strict=True):
            assert math.cos(math.radians(shown["angle"])) == pytest.approx(tensor.cosine, abs=1e-9)
    assert plots.angle(-1.0) == pytest.approx(180)
    figure = plots.alignment({"good": good, "bad": bad})
    names = [t.get_text() for t in figure.axes[0].get_yticklabels()]
    assert names == ["input", "recurrent.weight", "input.bias", "input.weight"]
    limits = figure.axes[0].get_xlim()
    assert limits[1] > max(t["angle"] for t in data["bad"]["tensors"])


def test_coupling_matrix_is_the_recurrent_weight() -> None:
    x, _ = batch()
    for symmetric in (True, False):
        model = network(symmetric=symmetric)
        found = plots.coupling_matrix(model, x)
        assert torch.allclose(found, model.recurrent.weight.detach(), atol=1e-6)
    deep, x, _ = teq.HopfieldMLP.example()
    matrix = plots.coupling_matrix(deep, x)
    assert matrix.shape == (17, 17)
    assert torch.allclose(matrix[9:, :9], deep.layers[1].weight, atol=1e-6)
    assert torch.equal(matrix[:9, :9], torch.zeros(9, 9))


def test_spectrum_during_training() -> None:
    model, (x, y) = network(), batch(32)
    recorder = plots.SpectrumRecorder(x, every=2)
    recorder(model)
    fit(model, x, y, TrainingConfig(epochs=2, batch_size=8, learning_rate=0.05), on_step=recorder)
    assert [row["step"] for row in recorder.rows] == [0, 2, 4, 6, 8]
    last = recorder.rows[-1]["eigenvalues"]
    assert max(abs(v) for v in last) == pytest.approx(model.lipschitz(), abs=1e-5)
    figure = plots.spectrum({"a": recorder, "b": recorder.rows}, radius=0.9)
    assert [a.get_title() for a in figure.axes] == ["a", "b"]
    with pytest.raises(teq.UnsupportedModelError, match="no recurrent matrix"):
        recorder(nn.Linear(6, 3))
    with pytest.raises(teq.InvalidInputError, match="no spectrum"):
        plots.spectrum([])


def test_training_curves() -> None:
    model, (x, y) = network(), batch(32)
    config = TrainingConfig(epochs=3, batch_size=8)
    history = fit(model, x, y, config, validation=(x, y), watch_lipschitz=True)
    data = plots.training_data({"EP": history})
    assert data["EP"]["accuracy"] == [100 * e.accuracy for e in history.epochs]
    assert len(plots.training(history).axes) == 2
    rows = [{"epoch": 1, "accuracy": 0.5}]
    assert len(plots.training(rows).axes) == 1
    with pytest.raises(teq.InvalidInputError, match="validation"):
        plots.training(fit(model, x, y, config))


def test_save_refuses_unknown_kinds_and_repeats_itself(tmp_path: Path) -> None:
    rows = [{"epoch": 1, "accuracy": 0.5}, {"epoch": 2, "accuracy": 0.6}]
    first = plots.save(plots.training(rows), tmp_path / "a" / "one.svg").read_bytes()
    again = plots.save(plots.training(rows), tmp_path / "one.svg").read_bytes()
    assert first == again
    with pytest.raises(teq.InvalidInputError, match=r"one\.svg"):
        plots.save(plots.training(rows), tmp_path / "one.jpeg")


@pytest.mark.parametrize("kind", KINDS)
def test_one_command_each(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"{kind}.png"
    options = ["--hidden", "16", "--epochs", "1", "--output", str(path), "--json"]
    result = CliRunner().invoke(app, ["plot", kind, *options])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)
    assert path.stat().st_size > 5000


@pytest.mark.parametrize("kind", KINDS)
def test_help_has_an_example(kind: str) -> None:
    assert f"toreqprop plot {kind}" in CliRunner().invoke(app, ["plot", kind, "--help"]).output


def test_a_file_that_cannot_be_written_is_refused_before_training() -> None:
    result = CliRunner().invoke(app, ["plot", "training", "--output", "a.jpeg", "--task", "none"])
    assert "a.svg" in str(result.exception)


def test_an_unknown_model_is_refused() -> None:
    result = CliRunner().invoke(app, ["plot", "relaxation", "--model", "backprop"])
    assert "choose looped or hopfield" in str(result.exception)
