"""One dense layer by conjugate gradients: the equilibria of plain iteration, in fewer products."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import toreqprop as teq
from toreqprop.kernels import compiled_available, conjugate_kernel, get_kernel
from toreqprop.models import base

pytestmark = pytest.mark.skipif(not compiled_available(), reason="needs Numba")


def network(
    width: int = 40, *, dtype: torch.dtype = torch.float64, loud: float = 1.0, **options: Any
) -> teq.LoopedMLP:
    torch.manual_seed(0)
    given: dict[str, Any] = {"radius": 0.95, "tol": 1e-9, "max_steps": 2000} | options
    model = teq.LoopedMLP(12, width, 4, **given).to(dtype)
    with torch.no_grad():
        model.recurrent.raw.mul_(30)  # the ball holds it: the norm is that of the radius
        model.input.weight.mul_(loud)
    return model


def batch(dtype: torch.dtype = torch.float64, rows: int = 7) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(rows, 12, dtype=dtype), torch.randint(0, 4, (rows,))


def settled(model: teq.EquilibriumModel, x: Tensor, y: Tensor) -> list[teq.Solution]:
    seen: list[teq.Solution] = []
    handle = model.register_relaxation_hook(lambda phase, solution: seen.append(solution))
    model.zero_grad()
    F.cross_entropy(model(x), y).backward()
    model.remove_relaxation_hook(handle)
    return seen


def test_it_is_the_default_where_plain_iteration_is_slow() -> None:
    assert network().solver == teq.Anderson(memory=2, tol=1e-9, max_steps=2000)
    for options in ({"radius": 0.3}, {"radius": 1.5}, {"symmetric": False}, {"kernel": "numpy"}):
        assert isinstance(network(**options).solver, teq.FixedPoint)


@pytest.mark.parametrize("compiled_step", [True, False], ids=["compiled step", "phases"])
@pytest.mark.parametrize("loud", [0.1, 1.0, 30.0], ids=["quiet", "usual", "saturated"])
@pytest.mark.parametrize("width", [1, 5, 16, 40])
@pytest.mark.parametrize("rows", [1, 7])
def test_equilibria_and_gradients_are_those_of_plain_iteration(
    rows: int, width: int, loud: float, compiled_step: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled_step:
        monkeypatch.setattr(base, "compiled_step", lambda *given: None)
    (x, y), found = batch(rows=rows), []
    for solver in (teq.Anderson(memory=2), teq.FixedPoint()):
        model = network(width, loud=loud)
        model.solver = solver
        model.tol, model.max_steps = 1e-12, 5000
        free, nudged = settled(model, x, y)
        assert free.status is nudged.status is teq.Status.CONVERGED
        found.append(
            [*free.state, *nudged.state, *nudged.shift, *(p.grad for p in model.parameters())]
        )
    for one, two in zip(*found, strict=True):
        # A residual of 1e-12 leaves twenty times that of a state, ten times more of a shift. What
        # lies along the norm of a single weight is zero but for rounding.
        scale = float(two.detach().abs().max())
        torch.testing.assert_close(one, two, rtol=0, atol=1e-9 * max(scale, 1e-4))


@pytest.mark.parametrize("tol", [1e-3, 1e-5])
def test_it_takes_fewer_products(tol: float) -> None:
    (x, y), steps = batch(rows=32), []
    for solver in (teq.Anderson(memory=2), teq.FixedPoint()):
        model = network(200)
        model.solver = solver
        model.tol, model.max_steps = tol, 2000
        steps.append([phase.steps for phase in settled(model, x, y)])
    for fewer, more in zip(*steps, strict=True):
        assert fewer < (0.7 if tol == 1e-5 else 0.9) * more


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_what_is_called_settled_meets_the_networks_own_equations(dtype: torch.dtype) -> None:
    """A residual is measured with products that follow from those before; it is that of the state
    multiplied anew, at both nudges, to rounding."""
    tol = 1e-5
    model, (x, y) = network(200, dtype=dtype, tol=tol), batch(dtype)
    free, nudged = settled(model, x, y)
    weight, bias, loop = (p.double() for p in model.system_parameters())
    drive = x.double() @ weight.mT + bias
    rounding = 200 * torch.finfo(dtype).eps  # a product has two hundred terms
    with torch.no_grad():
        state = free.state[0].double()
        gap = (torch.tanh(drive + state @ loop) - state).norm(dim=1) / state.norm(dim=1)
        assert float(gap.max()) <= tol + rounding
        assert float((gap - free.residual.double()).max()) <= rounding
        # Without the nudge both phases would be here; the change per shift is what is left of it.
        center, shift = nudged.state[0].double(), nudged.shift[0].double()
        ends = [torch.atanh(center + s * shift) - (center + s * shift) @ loop - drive
                for s in (1, -1)]  # fmt: skip
        push = 0.5 * (ends[0] - ends[1])  # −β times the direction
        slope = 1 - center.square()
        assert float(push.norm(dim=1).min()) > 0
        wanted = torch.linalg.solve(torch.diag_embed(1 / slope) - loop, push)
        assert float(((wanted - shift).norm(dim=1) / shift.norm(dim=1)).max()) < 0.01


def test_without_a_bound_it_ends_where_plain_iteration_does_or_says_so() -> None:
    """Norms of two and more: several equilibria, and quadratic proposals that are nonsense."""
    x, y = batch(rows=64)
    for scale in (2.0, 5.0, 20.0):
        model = network(spectral_norm=False, max_steps=3000, on_failure="ignore")
        model.solver = teq.Anderson(memory=2, tol=1e-9, max_steps=3000)
        with torch.no_grad():
            raw = model.recurrent.raw
            raw.mul_(scale / float(torch.linalg.matrix_norm(0.5 * (raw + raw.mT), 2)))
        free = settled(model, x, y)[0]
        state = free.state[0].detach()
        assert float(state.abs().max()) <= 1
        weight, bias, loop = (p.detach() for p in model.system_parameters())
        gap = (torch.tanh(x @ weight.mT + bias + state @ loop) - state).norm(dim=1)
        done = free.residual <= 1e-9
        assert float((gap[done] / state[done].norm(dim=1)).max()) < 1e-8
        assert (free.status is teq.Status.CONVERGED) == bool(done.all())


def test_numbers_that_are_not_finite_are_said() -> None:
    weight = torch.eye(4).mul(0.5)
    drive = torch.tensor([[0.1, 0.2, torch.nan, 0.0], [0.1, 0.2, 0.3, 0.4]])
    found = conjugate_kernel().relax(weight, drive, None, tol=1e-5, max_steps=50, contraction=None)
    assert found.status is teq.Status.DIVERGED


@pytest.mark.parametrize("start", [False, True])
def test_it_goes_on_from_a_start_and_remembers_where_it_ended(start: bool) -> None:
    torch.manual_seed(0)
    weight = torch.randn(48, 48, dtype=torch.float64)
    weight = (weight + weight.mT) / float(torch.linalg.matrix_norm(weight + weight.mT, 2)) * 0.9
    drive = torch.randn(5, 48, dtype=torch.float64)
    begin = torch.randn(5, 48, dtype=torch.float64).tanh() if start else None
    given: dict[str, Any] = {"tol": 1e-11, "max_steps": 500, "contraction": 0.9}
    plain = get_kernel("numpy")
    assert plain is not None
    images: list[tuple[Tensor, ...]] = []
    found = conjugate_kernel().relax(weight, drive, begin, record=images, **given)
    wanted = plain.relax(weight, drive, begin, **given)
    torch.testing.assert_close(found.state[0], wanted.state[0], rtol=0, atol=1e-9)
    last, product = found.memory
    torch.testing.assert_close(product, last @ weight, rtol=0, atol=1e-12)
    torch.testing.assert_close(torch.tanh(drive + product), found.state[0], rtol=0, atol=1e-14)
    assert len(images) == found.steps < wanted.steps
    torch.testing.assert_close(images[-1][0], found.state[0], rtol=0, atol=0)
    push = torch.randn(5, 48, dtype=torch.float64)
    for strength in (1e-2, 0.5):  # for the larger one the center has to move
        ours, exact = (
            kernel.relax_pair(weight, drive, push, (last, product), strength=strength, **given)
            for kernel in (conjugate_kernel(), plain)
        )
        assert ours.status is exact.status is teq.Status.CONVERGED
        for one, two in ((ours.state[0], exact.state[0]), (ours.shift[0], exact.shift[0])):
            torch.testing.assert_close(one, two, rtol=0, atol=1e-8)


def test_a_sample_does_not_depend_on_its_batch() -> None:
    model, (x, _) = network(40, tol=1e-4), batch(rows=9)
    whole = model.equilibrium(x)
    alone = copy.deepcopy(model).equilibrium(x[3:4])
    # Products of one row may be another routine's.
    torch.testing.assert_close(whole.state[0][3:4], alone.state[0], rtol=0, atol=1e-12)
