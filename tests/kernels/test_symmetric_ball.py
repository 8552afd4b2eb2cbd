"""The compiled symmetric ball: the reference's values, autograd's gradients, never outside."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from toreqprop.energies import SymmetricBall
from toreqprop.kernels import compiled_available, reference

pytestmark = pytest.mark.skipif(not compiled_available(), reason="Numba is not installed")

# Above the bound, below it, and sizes around the tile of the transposition.
CASES = [(1, 0.5), (7, 0.2), (8, 0.9), (40, 0.95), (33, 1e3)]


@pytest.mark.parametrize(("size", "radius"), CASES)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_value_and_gradient_match_reference_and_autograd(size, radius, dtype, bound):
    torch.manual_seed(size)
    raw = torch.randn(size, size, dtype=dtype, requires_grad=True)
    twin = raw.detach().clone().requires_grad_()
    weight = torch.randn(size, size, dtype=dtype)
    fast, plain = SymmetricBall(radius), SymmetricBall(radius, compiled=False)
    assert fast.compiled
    value, expected = fast(raw), plain(twin)
    (value * weight).sum().backward()
    (expected * weight).sum().backward()
    ball = reference.spectral_ball(reference.symmetrise(raw.detach().numpy()), radius)
    by_hand = reference.ball_gradient(weight.numpy(), ball)
    size_of = max(float(twin.grad.abs().max()), 1.0)
    assert torch.allclose(value, expected, rtol=0, atol=bound)
    assert np.abs(value.detach().numpy() - ball.weight).max() <= bound
    assert float((raw.grad - twin.grad).abs().max()) <= bound * size_of
    assert np.abs(raw.grad.numpy() - by_hand).max() <= bound * size_of


@pytest.mark.parametrize("radius", [0.3, 50.0])
def test_gradient_matches_finite_differences(radius):
    torch.manual_seed(0)
    raw = torch.randn(6, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(SymmetricBall(radius), (raw,))


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e4])
def test_the_norm_never_leaves_the_ball(scale):
    torch.manual_seed(0)
    weight = SymmetricBall(0.95)(scale * torch.randn(50, 50))
    assert torch.equal(weight, weight.mT)
    assert float(torch.linalg.matrix_norm(weight, 2)) <= 0.95 * (1 + 1e-5)


def test_a_nan_weight_is_not_hidden():
    raw = torch.zeros(4, 4)
    raw[1, 2] = torch.nan
    assert bool(torch.isnan(SymmetricBall(0.5)(raw)).any())
