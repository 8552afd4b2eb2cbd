"""A network that completes: what is seen is held fast, whatever is, and gradients stay exact."""

from __future__ import annotations

import pytest
import torch

import toreqprop as teq
from toreqprop.energies import CompletionEnergy, Energy
from toreqprop.energies.pairs import Pair
from toreqprop.training import TrainingConfig, fit


def covered(values: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    return torch.cat([values, seen], 1)


def test_what_is_seen_comes_out_as_it_went_in() -> None:
    torch.manual_seed(0)
    model = teq.CompletionNetwork(7, 9, 5, scale=3.0, tol=1e-6)
    values, seen = torch.randn(4, 7), (torch.rand(4, 7) < 0.5).float()
    found = model(covered(values, seen)).detach()
    torch.testing.assert_close(found * seen, values * seen)
    # What a hidden feature is said to be does not matter, and what is seen does.
    other = model(covered(torch.where(seen > 0, values, 9.0), seen)).detach()
    torch.testing.assert_close(other, found)
    moved = model(covered(values + seen, seen)).detach()
    assert float(((moved - found) * (1 - seen)).abs().max()) > 1e-2


def test_the_hidden_part_is_the_minimum_of_the_energy() -> None:
    """Of linear neurons the equilibrium is known. Without the drivers, whose part is
    ``e = D(m⊙x, m) + d + γBᵀh``, h has ``(1 − γBBᵀ)h = W_h v + W_s x + B(D(m⊙x, m) + d) + b``, and
    ``v = W_hᵀh + a``."""
    torch.manual_seed(0)
    linear = teq.energies.Linear()
    model = teq.CompletionNetwork(6, 8, 5, activation=linear, radius=0.9, feedback=0.3).double()
    with torch.no_grad():
        model.couplings.raw.mul_(3.0)
        model.offset.normal_()
    seen = torch.tensor([[1.0, 1, 0, 0, 1, 0]]).double()
    values, free = torch.randn(1, 6).double(), seen[0] == 0
    model.tol = 1e-12
    found = model(covered(values, seen)).detach()[0, free]
    _, weight, bias, back, drive, threshold = (p.detach() for p in model.system_parameters())
    inside, outside, offset = weight[:, free], weight[:, ~free], model.offset.detach()[free]
    said = drive @ covered(values * seen, seen)[0] + threshold
    right = outside @ values[0, ~free] + back @ said + bias + inside @ offset
    left = torch.eye(8).double() - 0.3 * back @ back.mT - inside @ inside.mT
    exact = inside.mT @ torch.linalg.solve(left, right) + offset
    torch.testing.assert_close(found, exact)


@pytest.mark.parametrize("dropped", [False, True])
def test_the_local_gradient_is_the_derivative_of_the_energy(dropped: bool) -> None:
    torch.manual_seed(0)
    seen = (torch.rand(3, 4) < 0.5).double()
    x, weight = covered(torch.randn(3, 4).double() * seen, seen), torch.rand(3).double()
    x = torch.cat([x, (torch.rand(3, 4) < 0.5).double()], 1) if dropped else x
    shapes = ((4,), (5, 4), (5,), (5, 2), (2, 8), (2,))
    params = tuple(torch.randn(shape).double() for shape in shapes)
    phases = tuple(Pair(torch.randn(3, n).double(), torch.randn(3, n).double()) for n in (4, 5, 2))
    field, wants = CompletionEnergy(), (False, *[True] * 6)
    local = field.energy_gradients(phases, weight, x, params, wants)
    derived = Energy.energy_gradients(field, phases, weight, x, params, wants)
    for one, two in zip(local[1:], derived[1:], strict=True):
        torch.testing.assert_close(one, two)
    state = tuple(p.center for p in phases)
    drive = field.prepare(x, params)
    by_hand = field.preactivation(state, drive, params)
    leaves = tuple(s.clone().requires_grad_() for s in state)
    exact = torch.autograd.grad(field.interaction(leaves, x, params).sum(), leaves)
    for one, two in zip(by_hand, exact, strict=True):
        torch.testing.assert_close(one, two)


def test_drivers_see_what_a_second_mask_leaves_them() -> None:
    """Without the couplings W all that is seen comes through the drivers."""
    torch.manual_seed(0)
    model = teq.CompletionNetwork(6, 8, 5, tol=1e-6)
    values, seen = torch.randn(4, 6), (torch.rand(4, 6) < 0.5).float()
    x, heard = covered(values, seen), (torch.rand(4, 6) < 0.5).float()
    with torch.no_grad():
        torch.testing.assert_close(model(torch.cat([x, torch.ones(4, 6)], 1)), model(x))
        found = model(torch.cat([x, heard], 1))
        torch.testing.assert_close(found * seen, values * seen)
        model.couplings.raw[:, :6] = 0
        told = model.equilibrium(torch.cat([x, heard], 1)).state[2]
        torch.testing.assert_close(told, model.equilibrium(covered(values, seen * heard)).state[2])
    proof = teq.certify(
        model.double(), torch.cat([x, heard], 1).double(), values.double(),
        loss=torch.nn.functional.mse_loss,
    )  # fmt: skip
    assert proof.ok, proof


def test_one_network_learns_to_complete_either_half() -> None:
    """Two features that are always alike: whichever is seen says what the other is."""
    torch.manual_seed(0)
    value = torch.randn(64, 1)
    whole = value.repeat(1, 2)
    seen = torch.eye(2)[torch.arange(64) % 2]
    model = teq.CompletionNetwork(2, 8, 8)
    config = TrainingConfig(epochs=60, learning_rate=0.02)
    history = fit(model, covered(whole, seen), whole, config, loss=torch.nn.functional.mse_loss)
    # Guessing the mean is wrong by half of the variance, as half of what counts is seen.
    assert history.epochs[-1].loss < 0.1 * 0.5 * float(value.var())


def test_the_bound_is_that_of_the_whole_map() -> None:
    """The slope of the plain map at any state, in the norm that weights layers by temperatures."""
    torch.manual_seed(0)
    model = teq.CompletionNetwork(4, 5, 3, feedback=0.2, radius=0.9).double()
    with torch.no_grad():
        model.couplings.raw.mul_(5.0)
        _, weight, _, back, _, _ = (p.detach() for p in model.system_parameters())
        slope = torch.zeros(12, 12).double()
        slope[4:9, :4], slope[:4, 4:9] = weight, weight.mT
        slope[4:9, 9:], slope[9:, 4:9] = back, 0.2 * back.mT
        root = torch.cat([torch.ones(9), torch.full((3,), 0.2**-0.5)]).double()
        exact = torch.linalg.matrix_norm(root[:, None] * slope / root, 2)
    assert model.lipschitz() == pytest.approx(float(exact))
    assert 0.85 < float(exact) < 0.9


def test_refuses_a_mask_that_is_none() -> None:
    model = teq.CompletionNetwork(3, 4, 2)
    with pytest.raises(teq.InvalidInputError, match="1 or 0"):
        model(torch.full((2, 6), 0.5))
    with pytest.raises(teq.InvalidInputError, match=r"\(batch, 6\)"):
        model(torch.zeros(2, 3))
