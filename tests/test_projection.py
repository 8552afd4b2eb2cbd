"""Weights projected after the step: the norm is kept, and the gradient needs no ball."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import toreqprop as teq
from toreqprop.training import TrainingConfig, fit


@pytest.mark.parametrize(
    "model",
    [
        teq.LoopedMLP(6, 9, 3, spectral_norm=False),
        teq.LoopedMLP(6, 9, 3, spectral_norm=False, symmetric=False),
        teq.HopfieldMLP([6, 9, 8, 7, 3], spectral_norm=False),
    ],
)
def test_couplings_are_scaled_into_the_radius_and_no_further(model: teq.EquilibriumModel) -> None:
    raw = [p for n, p in model.named_parameters() if n.endswith("raw") or ".weight" in n]
    with torch.no_grad():
        for parameter in raw:
            parameter.mul_(20)
    first = next(model.parameters()).clone()
    factor = teq.project_(model, 0.8)  # type: ignore[arg-type]
    assert factor < 1
    assert model.lipschitz() == pytest.approx(0.8, rel=1e-5)
    assert torch.equal(next(model.parameters()), first)  # what comes from the input is free
    assert teq.project_(model, 0.9) == 1.0  # type: ignore[arg-type]


def test_it_keeps_the_norm_throughout_training() -> None:
    model = teq.LoopedMLP(6, 9, 3, spectral_norm=False, on_failure="raise")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 6, generator=generator)
    y = torch.randint(0, 3, (64,), generator=generator)
    norms = []

    def after(net: torch.nn.Module) -> None:
        assert isinstance(net, teq.LoopedMLP)
        teq.project_(net, 0.5)
        norms.append(net.lipschitz())

    fit(model, x, y, TrainingConfig(epochs=20, learning_rate=0.05, batch_size=16), on_step=after)
    assert max(norms) <= 0.5 * (1 + 1e-5)
    assert max(norms) > 0.499  # the radius was reached: it is the projection that keeps it
    assert F.cross_entropy(model(x), y).item() < 1.0


def test_a_ball_and_a_projection_are_not_mixed() -> None:
    with pytest.raises(teq.InvalidInputError, match="spectral_norm=False"):
        teq.project_(teq.LoopedMLP(6, 9, 3), 0.5)
