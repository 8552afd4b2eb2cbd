"""Spectral control: a bound from above, at every step, at any learning rate."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import toreqprop as teq
from toreqprop.energies import SpectralBall, Symmetric, spectral_bound


def lipschitz_during_training(spectral_norm: bool, rate: float, hidden: int = 32) -> list[float]:
    torch.manual_seed(0)
    model = teq.LoopedMLP(
        10, hidden, 4, spectral_norm=spectral_norm, radius=0.95, on_failure="ignore"
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    x = torch.randn(64, 10)
    y = (x[:, :4] + 0.1 * torch.randn(64, 4)).argmax(1)
    seen = [model.lipschitz()]
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        seen.append(model.lipschitz())
    return seen


@pytest.mark.parametrize("rate", [1e-3, 0.05, 0.5])
def test_contraction_holds_at_every_step(rate: float) -> None:
    seen = lipschitz_during_training(True, rate)
    assert max(seen) < 1
    assert max(seen) <= 0.95 * (1 + 1e-5)  # the radius, up to float32


def test_without_spectral_norm_it_grows() -> None:
    assert max(lipschitz_during_training(False, 0.05)) > 1.5


@settings(max_examples=200, deadline=None)
@given(
    rows=st.integers(1, 20),
    columns=st.integers(1, 20),
    seed=st.integers(0, 10_000),
    scale=st.sampled_from([1e-20, 1e-3, 1.0, 1e6]),
    kind=st.sampled_from(["normal", "sparse", "rank_one", "symmetric", "zero_row"]),
    sharpen=st.integers(0, 4),
)
def test_bound_is_never_below_the_norm(
    rows: int, columns: int, seed: int, scale: float, kind: str, sharpen: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, columns, dtype=torch.float64, generator=generator)
    if kind == "sparse":
        weight = weight * (torch.rand(rows, columns, generator=generator) < 0.2)
    elif kind == "rank_one":
        weight = weight[:, :1] @ weight[:1]
    elif kind == "symmetric":
        weight = weight[: min(rows, columns), : min(rows, columns)]
        weight = weight + weight.mT
    elif kind == "zero_row":
        weight[0] = 0
    weight = scale * weight
    exact = float(torch.linalg.matrix_norm(weight, 2))
    assert float(spectral_bound(weight, sharpen)) >= exact * (1 - 1e-12)


def test_bound_is_tight_for_positive_matrices() -> None:
    """By Perron-Frobenius the bound is the norm itself where no signs cancel."""
    weight = torch.rand(12, 12, dtype=torch.float64)
    weight = weight + weight.mT
    exact = float(torch.linalg.matrix_norm(weight, 2))
    assert float(spectral_bound(weight)) == pytest.approx(exact, rel=1e-2)


@pytest.mark.parametrize("scale", [0.01, 3.0], ids=["inside", "outside"])
def test_parametrization_has_exact_gradients(scale: float) -> None:
    ball, symmetric = SpectralBall(0.95), Symmetric()
    raw = (scale * torch.randn(5, 5, dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(lambda a: ball(symmetric(a)), (raw,))


def test_inside_the_ball_nothing_changes() -> None:
    weight = 0.01 * torch.randn(6, 6)
    assert torch.equal(SpectralBall(0.95)(weight), weight)


def test_recurrent_weight_is_symmetric() -> None:
    model = teq.LoopedMLP(3, 7, 2)
    assert torch.equal(model.recurrent.weight, model.recurrent.weight.mT)


def test_lipschitz_is_the_exact_norm() -> None:
    model = teq.LoopedMLP(3, 7, 2, spectral_norm=False)
    with torch.no_grad():
        model.recurrent.raw.copy_(torch.diag(torch.tensor([3.0, -4.0, 1, 0, 0, 0, 0])))
    assert model.lipschitz() == pytest.approx(4.0, rel=1e-6)
    assert isinstance(model.lipschitz(), float)


def test_the_exact_ball_is_tight_where_the_bound_is_loose() -> None:
    torch.manual_seed(0)
    weight = torch.randn(20, 30)
    exact, bounded = SpectralBall(0.5, exact=True)(weight), SpectralBall(0.5)(weight)
    assert float(torch.linalg.matrix_norm(exact, 2)) == pytest.approx(0.5, rel=1e-5)
    assert float(torch.linalg.matrix_norm(bounded, 2)) < 0.5
    assert torch.equal(SpectralBall(100.0, exact=True)(weight), weight)
