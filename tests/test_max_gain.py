"""The limit on what one sample counts: it scales that sample's gradient and leaves the others."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

import toreqprop as teq
from toreqprop.energies.system import sample_norm
from toreqprop.solution import Solution


def weights(model: teq.LoopedMLP, x: Tensor, max_gain: float | None) -> tuple[Tensor, list[float]]:
    """The gradient of the recurrent weights of a summed loss, and every sample's gain."""
    model = copy.deepcopy(model)
    model.gradient = teq.CenteredEP(beta=1e-3, max_gain=max_gain)
    gains: list[float] = []

    def record(phase: str, found: Solution) -> None:
        if phase == "nudged":
            # The loss is the sum of all states: its direction has the norm √9.
            gains.extend((sample_norm(found.shift) / (1e-3 * 3.0)).tolist())

    model.register_relaxation_hook(record)
    model.equilibrium(x).state[0].sum().backward()
    grad = model.recurrent.raw.grad
    assert grad is not None
    return grad, gains


@pytest.fixture
def model() -> teq.LoopedMLP:
    torch.manual_seed(0)
    return teq.LoopedMLP(6, 9, 4, tol=1e-10, max_steps=500, kernel="torch").double()


def test_a_sample_above_the_limit_counts_that_much_less(model: teq.LoopedMLP) -> None:
    # A quiet sample responds, one that is saturated hardly does.
    quiet, loud = torch.randn(1, 6).double(), 20 * torch.randn(1, 6).double()
    (one, (high,)), (two, (low,)) = weights(model, quiet, None), weights(model, loud, None)
    assert low < 0.8 * high
    limit = 0.5 * (high + low)
    both, gains = weights(model, torch.cat([quiet, loud]), limit)
    assert gains == pytest.approx([high, low])
    torch.testing.assert_close(both, one * (limit / high) + two)


def test_a_limit_that_is_not_reached_changes_nothing(model: teq.LoopedMLP) -> None:
    x = torch.randn(3, 6).double()
    free, gains = weights(model, x, None)
    assert torch.equal(weights(model, x, 2 * max(gains))[0], free)


def test_a_sample_without_a_loss_counts_nothing(model: teq.LoopedMLP) -> None:
    model.gradient = teq.CenteredEP(max_gain=1.0)
    (0.0 * model.equilibrium(torch.randn(2, 6).double()).state[0].sum()).backward()
    grad = model.recurrent.raw.grad
    assert grad is not None
    assert torch.equal(grad, torch.zeros_like(grad))
