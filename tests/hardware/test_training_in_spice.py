"""Iris learnt inside the simulator: every voltage comes from ngspice."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

from toreqprop.hardware import Ngspice, solve_circuit

EXAMPLE = Path(__file__).parents[2] / "examples" / "iris_in_spice.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("iris_in_spice", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_iris_is_learnt_from_spice_voltages(ngspice: Ngspice, example: ModuleType) -> None:
    assert example.train(ngspice.solve, epochs=20) >= 0.9


def test_pytorch_and_spice_train_alike(ngspice: Ngspice, example: ModuleType) -> None:
    network, (x, y, _, _) = example.NETWORK, example.iris(0)
    target = torch.nn.functional.one_hot(y, 3).double()
    found = []
    for solve in (ngspice.solve, solve_circuit):
        conductances = network.random_conductances(0)
        for rows in torch.arange(60).split(20):
            slopes = example.nudged_gradients(
                network, conductances, x[rows], target[rows], 1e-6, solve=solve
            )
            conductances = example.updated(conductances, slopes, 5e-8)
        found.append(torch.cat([g.flatten() for g in conductances]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-6, atol=0)


def test_without_learning_it_stays_near_chance(example: ModuleType) -> None:
    trained = [example.train(solve_circuit, seed, epochs=0) for seed in range(5)]
    assert sum(trained) / 5 < 0.6
