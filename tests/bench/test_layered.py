"""The layered rows and measurements: right networks, plain data."""

from __future__ import annotations

import json

import pytest
import torch

from toreqprop.bench import layered, rows
from toreqprop.bench.hyperparameters import settings
from toreqprop.bench.run import Run, build
from toreqprop.errors import InvalidInputError
from toreqprop.models import HopfieldMLP
from toreqprop.tasks import get


def test_a_layered_row_is_about_its_task() -> None:
    assert rows.task_of("mnist-layered") is get("mnist")
    assert rows.title("mnist-layered", False) == "MNIST (5k), layered"
    assert rows.title("digits", False) == get("digits").title
    with pytest.raises(InvalidInputError):
        rows.task_of("mnist-looped")


def test_its_model_is_layered_with_the_backprop_networks_sizes() -> None:
    chosen = settings("mnist-layered", False)
    data = get("digits").load(42, False)
    model = build(Run("mnist-layered", "ep", 42, chosen), data, chosen.ep)
    assert isinstance(model, HopfieldMLP)
    assert model.sizes == (64, chosen.hidden, chosen.hidden, 10)
    twin = build(Run("mnist-layered", "backprop", 42, chosen), data, chosen.backprop)
    count = [sum(p.numel() for p in m.parameters()) for m in (model, twin)]
    assert count[0] == count[1]
    assert chosen.backprop == settings("mnist", False).backprop


def test_depth_is_measured_and_its_growth_fitted() -> None:
    torch.set_num_threads(1)
    points = layered.depth_cost((1, 2), rounds=1)
    assert [p.layers for p in points] == [1, 2]
    assert all(p.milliseconds > 0 and p.free_steps >= 1 for p in points)
    line = [layered.DepthPoint(n, 3.0 * n, 3.0, 1.0, 1.0) for n in (2, 4, 8)]
    assert layered.growth(line) == pytest.approx(1.0)
    run = layered.DeepRun(32, 1, 0.9, 0.1, 1.0, 1.0, True, 0.99, 1.0, (1.0,))
    assert json.loads(json.dumps(layered.as_dict([], line, run)))["growth_exponent"]


def test_the_twin_has_the_same_layers() -> None:
    model, twin = HopfieldMLP((12, 8, 7, 5)), layered.feed_forward((12, 8, 7, 5))
    count = [sum(p.numel() for p in m.parameters()) for m in (model, twin)]
    assert count[0] == count[1]
    assert twin(torch.randn(3, 12)).shape == (3, 5)
