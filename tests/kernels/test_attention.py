"""Attention with an energy: the compiled phases and gradients against the general path."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from toreqprop.energies import AttentionEnergy, LinearNudge, Opposed, System
from toreqprop.energies.attention import compiled_heads
from toreqprop.energies.base import Energy
from toreqprop.energies.pairs import Pair
from toreqprop.solvers import Anderson, relax, relax_pair

pytest.importorskip("numba")

from toreqprop.kernels import attention_loops, products
from toreqprop.kernels.compiling import compiled

MULTIPLY = compiled(products.multiply)

SHAPES = [(6, 8, 16, 2, 16), (5, 3, 12, 3, 24), (3, 1, 8, 1, 8)]
"""Batch, tokens, width, heads, and rows of a projection."""


def _system(shape: tuple[int, ...], dtype: torch.dtype, norm: float = 0.9) -> System:
    """Projections so large that attention matters, and a bias of longer sequences."""
    batch, n, width, heads, rows = shape
    torch.manual_seed(3)
    weights = [torch.randn(rows, width, dtype=dtype) for _ in range(2)]
    weights = [norm * w / torch.linalg.matrix_norm(w, 2) for w in weights]
    bias = torch.randn(heads, n + 2, n + 2, dtype=dtype)
    x = 0.7 * torch.randn(batch, n, width, dtype=dtype)
    return System.bind(AttentionEnergy(heads), x, (*weights, bias))


def _opposed(system: System, beta: float) -> Opposed:
    direction = torch.randn_like(system.x)
    direction[0] = 0  # a sample that the loss does not look at
    return Opposed(LinearNudge((direction,), beta), LinearNudge((direction,), -beta))


@pytest.mark.parametrize("memory", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_both_phases_end_where_the_general_path_does(shape, memory) -> None:
    system, solver = _system(shape, torch.float64), Anderson(memory, tol=1e-10)
    fast = relax(system, solver, kernel="auto")
    general = relax(system, solver, kernel=None)
    assert torch.allclose(fast.state[0], general.state[0], rtol=0, atol=1e-9)
    # So weak a nudge that it moves the center by less than the tolerance.
    nudge = _opposed(system, 1e-6)
    two = relax_pair(system, nudge, solver, fast.state, kernel="auto")
    other = relax_pair(system, nudge, solver, general.state, kernel=None)
    heads = compiled_heads(system.drive, memory)
    assert heads is not None
    pushes = [(nudge.up.direction[0], 1e-6)]
    assert heads.relax_pair(pushes, fast.state, tol=1e-10, max_steps=100) is not None
    assert other.converged
    assert torch.allclose(two.state[0], other.state[0], rtol=0, atol=1e-9)
    assert torch.allclose(two.shift[0], other.shift[0], rtol=0, atol=1e-9 * 1e-6 * 100)
    assert not bool(two.shift[0][0].any())


@pytest.mark.parametrize("shape", SHAPES)
def test_what_ends_a_phase_is_a_residual_of_the_nonlinear_map(shape) -> None:
    system, tol = _system(shape, torch.float32), 1e-3
    solver = Anderson(2, tol=tol)
    free = relax(system, solver, kernel="auto")
    assert float(free.residual.max()) <= tol
    again = system.map(free.state)[0] - free.state[0]
    size = again.flatten(1).norm(dim=1) / free.state[0].flatten(1).norm(dim=1)
    assert float(size.max()) <= tol  # also of what is returned
    nudge = _opposed(system, 0.01)
    two = relax_pair(system, nudge, solver, free.state, kernel="auto")
    for beta, state in ((0.01, two.up), (-0.01, two.down)):
        pushed = system.nudged(LinearNudge(nudge.up.direction, beta))
        apart = (pushed.map(state)[0] - state[0]).flatten(1).norm(dim=1)
        moved = two.shift[0].flatten(1).norm(dim=1)
        assert bool((apart <= tol * state[0].flatten(1).norm(dim=1) + 10 * tol * moved).all())


def test_a_strong_nudge_is_left_to_the_general_path() -> None:
    system, solver = _system(SHAPES[0], torch.float64), Anderson(2, tol=1e-8)
    free = relax(system, solver, kernel="auto")
    nudge = _opposed(system, 0.1)
    heads = compiled_heads(system.drive)
    pushes = [(nudge.up.direction[0], 0.1)]
    assert heads is not None
    assert heads.relax_pair(pushes, free.state, tol=1e-8, max_steps=100) is None
    fast = relax_pair(system, nudge, solver, free.state, kernel="auto")
    general = relax_pair(system, nudge, solver, free.state, kernel=None)
    assert torch.equal(fast.shift[0], general.shift[0])


def test_what_does_not_settle_is_named_by_the_general_path() -> None:
    system = _system(SHAPES[0], torch.float32, norm=40.0)
    found = relax(system, Anderson(2, tol=1e-6, max_steps=7), kernel="auto")
    assert not found.converged
    assert found.steps == 7


@pytest.mark.parametrize("size", [1e-9, 1e-2, 0.8])
@pytest.mark.parametrize("shape", SHAPES)
def test_local_gradients_are_those_of_the_energy(shape, size) -> None:
    system = _system(shape, torch.float64)
    field = system.field
    assert isinstance(field, AttentionEnergy)
    pair = (Pair(torch.randn_like(system.x), size * torch.randn_like(system.x)),)
    weight = torch.randn(len(system.x), dtype=torch.float64)
    given = (pair, weight, system.x, system.params, (True,) * 4)
    for found, exact in zip(
        field.energy_gradients(*given), Energy.energy_gradients(field, *given), strict=True
    ):
        assert torch.allclose(found, exact, rtol=1e-9, atol=1e-12 * size)


@pytest.mark.parametrize("start", [0.0, math.nan])
def test_numbers_that_are_none_are_not_taken_for_settled(start) -> None:
    system = _system(SHAPES[0], torch.float32)
    begin = (torch.full_like(system.x, start),)
    found = relax(system, Anderson(2), start=begin, kernel="auto")
    assert found.converged == (start == 0.0)


def test_exponentials_and_hyperbolic_functions() -> None:
    import numba

    @numba.njit
    def powers(values, out):
        for j in range(len(values)):
            out[j] = attention_loops.exponential(values[j])

    values = np.linspace(-86, 20, 10001).astype(np.float32)
    out = np.empty_like(values)
    powers(values, out)
    exact = np.exp(values.astype(float))
    assert np.abs(out / exact - 1).max() < 3e-7
    hyperbolic = compiled(attention_loops._hyperbolic)
    for reach in (1e-12, 1.0, 5.0):
        move = np.linspace(-reach, reach, 1001).astype(np.float32)
        odd, even = np.empty_like(move), np.empty_like(move)
        hyperbolic(move, odd, even)
        wide = move.astype(float)
        assert np.abs(odd - np.sinh(wide)).max() <= 3e-7 * np.sinh(reach)
        near = np.abs(wide) > 0.01 * reach  # and digits of small ones
        assert np.abs(odd[near] / np.sinh(wide[near]) - 1).max() < 5e-7
        assert np.abs(even / np.cosh(wide) - 1).max() < 5e-7


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True)])
def test_a_product_of_parts_of_matrices(turned) -> None:
    a, b = torch.randn(6, 9, dtype=torch.float64), torch.randn(6, 7, dtype=torch.float64)
    out = torch.zeros(5, 8, dtype=torch.float64)
    rows, inner, columns = 3, 4, 2
    left = a[:inner, :rows].mT if turned[0] else a[:rows, :inner]
    right = b[:columns, :inner].mT if turned[1] else b[:inner, :columns]
    MULTIPLY(
        products.routine(torch.float64), (a.data_ptr(), b.data_ptr(), out.data_ptr()),
        (rows, inner, columns), (9, 7, 8), turned,
    )  # fmt: skip
    assert torch.allclose(out[:rows, :columns], left @ right, rtol=0, atol=1e-14)
    assert float(out.abs().sum()) == pytest.approx(float((left @ right).abs().sum()))
