"""What every registered activation owes. A new line in ``ACTIVATIONS`` is tested here by itself."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from toreqprop.energies import (
    ACTIVATIONS,
    Activation,
    ClippedReLU,
    HardTanh,
    LeakyReLU,
    Logistic,
    Softplus,
    Tanh,
)
from toreqprop.errors import InvalidInputError

CASES: dict[str, Activation] = {
    **{name: cls() for name, cls in ACTIVATIONS.items()},
    "relu": ClippedReLU(float("inf")),
    "hard_tanh skew": HardTanh(-0.5, 2.0),
    "leaky_relu 0.01": LeakyReLU(0.01),
}
EVERY = pytest.mark.parametrize("name", CASES)
INSIDE = torch.linspace(-2.9, 2.87, 401, dtype=torch.float64)
"""Preactivations without a kink of any activation among them."""


@EVERY
def test_monotone_with_the_slope_and_the_reach_it_states(name: str) -> None:
    sigma = CASES[name]
    u = torch.linspace(-30, 30, 20001, dtype=torch.float64)
    rise = (sigma(u)[1:] - sigma(u)[:-1]) / (u[1:] - u[:-1])
    assert float(rise.min()) >= 0
    assert float(rise.max()) <= sigma.slope * (1 + 1e-9)
    assert float(rise.max()) >= 0.98 * sigma.slope  # no looser than it needs to be
    assert float(sigma(u).abs().max()) <= sigma.reach


@EVERY
def test_the_inverse_undoes_it(name: str) -> None:
    sigma = CASES[name]
    s = sigma(INSIDE)
    assert torch.allclose(sigma(sigma.inverse(s)), s, rtol=1e-9, atol=1e-12)
    assert bool(torch.isfinite(sigma.inverse(sigma(100 * INSIDE))).all())


@EVERY
def test_the_potential_has_the_inverse_as_its_gradient(name: str) -> None:
    sigma = CASES[name]
    s = sigma(INSIDE)
    s = s[(rise_of(sigma, INSIDE) > 1e-3)]  # inside its range
    step = 1e-6
    slope = (sigma.potential(s + step) - sigma.potential(s - step)) / (2 * step)
    # The difference of two potentials of order ten in float64, over a step of 1e-6.
    assert torch.allclose(slope, sigma.inverse(s), rtol=1e-6, atol=1e-7)


def rise_of(sigma: Activation, u: torch.Tensor) -> torch.Tensor:
    return (sigma(u + 1e-6) - sigma(u - 1e-6)) / 2e-6


@EVERY
@pytest.mark.parametrize("size", [2.0, 1e-2])
def test_a_pair_is_two_evaluations(name: str, size: float) -> None:
    sigma = CASES[name]
    shift = size * torch.randn_like(INSIDE)
    mean, half = sigma.pair(INSIDE, shift)
    up, down = sigma(INSIDE + shift), sigma(INSIDE - shift)
    assert torch.allclose(mean, 0.5 * (up + down), rtol=1e-10, atol=1e-12)
    assert torch.allclose(half, 0.5 * (up - down), rtol=1e-9, atol=1e-12)


@EVERY
def test_a_difference_of_1e_12_keeps_its_digits_in_single_precision(name: str) -> None:
    """Against float64, where the slope at the center gives it: its curvature is 1e-24."""
    sigma = CASES[name]
    center = INSIDE.float()
    shift = 1e-12 * torch.randn_like(center)
    _, half = sigma.pair(center, shift)
    exact = rise_of(sigma, center.double()) * shift.double()
    assert float((half.double() - exact).norm()) <= 1e-5 * float(exact.norm())


@EVERY
def test_saturated_pairs_are_finite(name: str) -> None:
    sigma = CASES[name]
    for center in (-200.0, 0.0, 200.0):
        for shift in (-300.0, 0.0, 1e-30, 40.0):
            pair = sigma.pair(torch.tensor([center]), torch.tensor([shift]))
            assert all(bool(torch.isfinite(t).all()) for t in pair)


def test_they_are_torch_s_own() -> None:
    for sigma, function in (
        (Tanh(), torch.tanh),
        (Logistic(), torch.sigmoid),
        (ClippedReLU(6), F.relu6),
        (ClippedReLU(float("inf")), F.relu),
        (HardTanh(), F.hardtanh),
        (LeakyReLU(0.01), F.leaky_relu),
        (Softplus(), F.softplus),
    ):
        assert torch.allclose(sigma(3 * INSIDE), function(3 * INSIDE))


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: ClippedReLU(0), "height must be > 0"),
        (lambda: LeakyReLU(0), "leak must be in"),
        (lambda: HardTanh(1, 1), "low must be < high"),
    ],
)
def test_nonsense_is_refused(build: type, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        build()
