"""Property tests: whatever the shapes, dtypes and seeds."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import toreqprop as teq

SHAPES = {
    "inputs": st.integers(1, 12),
    "hidden": st.integers(1, 20),
    "classes": st.integers(1, 6),
    "batch": st.integers(1, 9),
    "seed": st.integers(0, 10_000),
}


def build(
    inputs: int, hidden: int, classes: int, batch: int, seed: int, **options: object
) -> tuple[teq.LoopedMLP, torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    model = teq.LoopedMLP(inputs, hidden, classes, radius=0.95, **options)  # type: ignore[arg-type]
    with torch.no_grad():
        model.recurrent.raw.mul_(float(torch.rand(())) * 40)
    return model, 3 * torch.randn(batch, inputs), torch.randint(0, classes, (batch,))


@settings(max_examples=60, deadline=None)
@given(**SHAPES, double=st.booleans(), symmetric=st.booleans())
def test_forward_and_backward_are_finite_and_shaped(
    inputs: int, hidden: int, classes: int, batch: int, seed: int, double: bool, symmetric: bool
) -> None:
    model, x, y = build(inputs, hidden, classes, batch, seed, symmetric=symmetric, max_steps=1000)
    if double:
        model, x = model.double(), x.double()
    output = model(x)
    assert output.shape == (batch, classes)
    assert output.dtype == x.dtype
    F.cross_entropy(output, y).backward()
    for p in model.parameters():
        assert p.grad is not None
        assert p.grad.shape == p.shape
        assert bool(torch.isfinite(p.grad).all())
    solution = model.equilibrium(x)
    assert solution.converged
    assert solution.residual.shape == (batch,)
    assert solution.error_bound.shape == (batch,)
    assert bool(torch.isfinite(solution.error_bound).all())
    assert model.lipschitz() < 1
    if symmetric:
        assert model.energy(x).shape == (batch,)


@settings(max_examples=40, deadline=None)
@given(**SHAPES)
def test_centred_ep_is_the_implicit_gradient(
    inputs: int, hidden: int, classes: int, batch: int, seed: int
) -> None:
    """float64, β = 1e-3: relative error below 1e-3 for any network, normally 1e-6."""
    model, x, y = build(inputs, hidden, classes, batch, seed, tol=1e-12, max_steps=5000)
    model, x = model.double(), x.double()

    def flat(gradient: teq.gradients.GradientEstimator) -> torch.Tensor:
        model.gradient = gradient
        found = torch.autograd.grad(F.cross_entropy(model(x), y), list(model.parameters()))
        return torch.cat([g.flatten() for g in found])

    exact = flat(teq.ImplicitGradient())
    error = (flat(teq.CenteredEP(1e-3)) - exact).norm()
    assert float(error) <= 1e-3 * float(exact.norm()) + 1e-12


@settings(max_examples=40, deadline=None)
@given(**SHAPES)
def test_the_equilibrium_minimises_the_energy(
    inputs: int, hidden: int, classes: int, batch: int, seed: int
) -> None:
    """With L < 1 the energy is strictly convex on the box: every other state has more of it."""
    model, x, _ = build(inputs, hidden, classes, batch, seed, tol=1e-10, max_steps=5000)
    model, x = model.double(), x.double()
    state = model.equilibrium(x).state[0]
    with torch.no_grad():
        params = model.system_parameters()
        here = model.field.energy((state,), x, params)
        for size in (1e-2, 0.3):
            there = (state + size * torch.randn_like(state)).clamp(-1, 1)
            assert bool((model.field.energy((there,), x, params) >= here - 1e-10).all())
