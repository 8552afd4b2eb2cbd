"""Maps in compiled code: both phases against the general path, settled or not."""

from __future__ import annotations

import pytest
import torch

from toreqprop.energies import LinearNudge, MapEnergy, Opposed, System
from toreqprop.solution import Status
from toreqprop.solvers import FixedPoint, relax, relax_pair

pytest.importorskip("numba")

from toreqprop.kernels.cells import Cells

SHAPES = [(5, 3, 9, 9, 3), (3, 2, 6, 17, 5), (2, 4, 1, 4, 1)]
"""Batch, channels, height, width, and side of the kernel."""


def _system(shape: tuple[int, ...], dtype: torch.dtype, start: float = 0.0) -> System:
    """Couplings of both signs, and drives from silent to lit."""
    batch, channels, height, width, side = shape
    torch.manual_seed(4)
    kernel = torch.randn(channels, channels, side, side, dtype=dtype) / (channels * side)
    kernel = 0.25 * (kernel + kernel.transpose(0, 1).flip(2, 3))
    drive = torch.randn(channels, 2, side, side, dtype=dtype)
    x = torch.randn(batch, 2, height, width, dtype=dtype)
    bias = torch.full((channels,), 0.3, dtype=dtype)
    return System.bind(MapEnergy(start=start), x, (drive, bias, kernel))


def _opposed(system: System, beta: float) -> Opposed:
    direction = torch.randn_like(system.drive[0])
    direction[0] = 0  # a sample that the loss does not look at
    return Opposed(LinearNudge((direction,), beta), LinearNudge((direction,), -beta))


@pytest.mark.parametrize("damping", [1.0, 0.6])
@pytest.mark.parametrize("max_steps", [3, 500])
@pytest.mark.parametrize("shape", SHAPES)
def test_both_phases_are_those_of_the_general_path(shape, max_steps, damping) -> None:
    """Iterate by iterate: the same steps, and all digits, also where the steps are used up."""
    system = _system(shape, torch.float64, start=1.0)
    solver = FixedPoint(tol=1e-9, max_steps=max_steps, damping=damping)
    nudge = _opposed(system, 0.1)
    fast, general = (relax(system, solver, kernel=kernel) for kernel in ("auto", None))
    both = [
        relax_pair(system, nudge, solver, found.state, memory=found.memory, kernel=kernel)
        for found, kernel in ((fast, "auto"), (general, None))
    ]
    for one, other in ((fast, general), both):
        assert (one.steps, one.status, one.layer) == (other.steps, other.status, other.layer)
        assert torch.allclose(one.state[0], other.state[0], rtol=0, atol=1e-13)
        assert torch.allclose(one.residual, other.residual, rtol=1e-5, atol=1e-13)
    assert (fast.status is Status.CONVERGED) == (max_steps == 500)
    assert torch.allclose(fast.memory[0], general.memory[0], rtol=0, atol=1e-13)
    assert torch.allclose(both[0].shift[0], both[1].shift[0], rtol=0, atol=1e-13)
    assert not both[0].shift[0][0].any()


def test_in_single_precision_to_its_digits() -> None:
    system, solver = _system(SHAPES[0], torch.float32), FixedPoint(tol=1e-6, max_steps=500)
    nudge = _opposed(system, 1e-3)
    fast, general = (relax(system, solver, kernel=kernel) for kernel in ("auto", None))
    assert torch.allclose(fast.state[0], general.state[0], rtol=0, atol=1e-5)
    shifts = [
        relax_pair(system, nudge, solver, fast.state, memory=fast.memory, kernel=kernel).shift[0]
        for kernel in ("auto", None)
    ]
    # Ten times the tolerance is what a shift may be off, relative to itself.
    assert float((shifts[0] - shifts[1]).norm() / shifts[1].norm()) < 1e-4


def test_what_it_cannot_do_is_left_to_the_general_path() -> None:
    system = _system(SHAPES[0], torch.float32)
    drive, kernel = system.drive[0].clone(), system.params[2]
    push = torch.randn_like(drive)
    cells = Cells(drive, kernel)
    found = cells.relax(None, tol=1e-5, max_steps=100)
    assert found is not None
    assert cells.relax_pair([None], found.state, tol=1e-5, max_steps=100) is None
    assert cells.relax_pair([(push, 1e-18)], found.state, tol=1e-5, max_steps=100) is None
    assert cells.relax_pair([(push, 1e-3)], found.state, tol=1e-5, max_steps=100) is not None
    drive[1, 0, 2, 3] = torch.nan
    assert Cells(drive, kernel).relax(None, tol=1e-5, max_steps=100) is None
