"""A map coupled to its own neighbourhood: its energy, the order it keeps, what it can solve."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import toreqprop as teq
from toreqprop.bench.mazes import cell_loss, score, targets
from toreqprop.energies import Energy, MapEnergy, SymmetricKernel, System
from toreqprop.energies.pairs import Pair
from toreqprop.solvers import relax
from toreqprop.tasks.mazes import mazes


def hand_set(start: float, coupling: float, bias: float) -> teq.EquilibriumMap:
    """One channel whose cells listen to their four neighbours; walls off, marks on."""
    model = teq.EquilibriumMap(2, 1, start=start, solver=teq.FixedPoint(tol=1e-5, max_steps=4000))
    with torch.no_grad():
        for part in model.parameters():
            part.zero_()
        model.drive.weight[0, 0, 1, 1], model.drive.weight[0, 1, 1, 1] = -9.0, 4.0
        model.drive.bias[:] = bias
        model.recurrent.raw[0, 0] = coupling * torch.tensor([[0, 1, 0], [1, 0, 1], [0, 1, 0.0]])
        model.readout.weight[:, 0] = torch.tensor([-4.0, 4.0])
        model.readout.bias[:] = torch.tensor([2.0, -2.0])
    return model


HAND_SET = {"maze-reach": (0.0, 1.2, -0.45), "maze-path": (1.0, 1.6, -1.8)}
"""Start, coupling and bias: one lit neighbour lights a cell; a cell with one lit neighbour goes
out."""


@pytest.mark.parametrize("task", HAND_SET)
def test_one_kernel_solves_mazes_of_every_size(task: str) -> None:
    """What the study asks training to find exists, and `score` knows right from wrong."""
    model = hand_set(*HAND_SET[task])
    for side in (9, 33):
        found = mazes(task, side, 6, seed=3)
        exact, cells, steps = score(model, found)
        assert (exact, cells) == (100.0, 100.0)
        assert steps > side  # the far end hears of the start in no fewer steps
    found.y[0, 1, 1] = 1 - found.y[0, 1, 1]
    assert score(model, found)[0] == pytest.approx(100 * 5 / 6)


def test_the_gradient_at_a_front_is_certified() -> None:
    """A trained map is far from contracting everywhere; its gradient is exact all the same."""
    model = hand_set(*HAND_SET["maze-reach"])
    found = mazes("maze-reach", 9, 8, seed=0)
    certificate = teq.certify(model, torch.from_numpy(found.x), targets(found), loss=cell_loss)
    assert model.lipschitz() > 2
    assert certificate.ok, certificate.verdict


def test_the_local_gradient_is_the_derivative_of_the_energy() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(3, 2, 4, 5).double(), torch.rand(3).double()
    kernel = SymmetricKernel()(torch.randn(4, 4, 3, 3).double())
    params = (torch.randn(4, 2, 3, 3).double(), torch.randn(4).double(), kernel)
    phases = (Pair(torch.rand(3, 4, 4, 5).double(), 0.1 * torch.randn(3, 4, 4, 5).double()),)
    field, wants = MapEnergy(), (True,) * 4
    local = field.energy_gradients(phases, weight, x, params, wants)
    derived = Energy.energy_gradients(field, phases, weight, x, params, wants)
    for name, one, two in zip(("x", "drive", "bias", "kernel"), local, derived, strict=True):
        assert one is not None
        assert two is not None
        torch.testing.assert_close(one, two, msg=name)


def test_cooperation_keeps_order_whatever_the_weights() -> None:
    """From below a relaxation only rises, from above it only falls, and the one ends below the
    other: with couplings so strong that nothing contracts."""
    torch.manual_seed(0)
    model = teq.EquilibriumMap(2, 3, coupling=0.6, tol=1e-5, max_steps=2000)
    x = torch.randn(5, 2, 7, 7)
    with torch.no_grad():
        model.drive.bias -= 2.0  # half of what a lit neighbourhood gives
    params = tuple(p.detach() for p in model.system_parameters())
    assert bool((params[2] >= 0).all())
    ends = []
    for start, sign in ((0.0, 1.0), (1.0, -1.0)):
        trace = teq.Trace(keep_states=True)
        found = relax(System.bind(MapEnergy(start=start), x, params), model.solver, trace=trace)
        assert found.converged
        path = torch.stack([s for (s,) in trace.states])
        assert float((sign * path.diff(dim=0)).min()) >= -1e-6  # roundings of states up to one
        ends.append(found.state[0])
    assert bool((ends[0] <= ends[1] + 1e-4).all())
    assert float((ends[1] - ends[0]).max()) > 0.5  # there are several equilibria


def test_without_cooperation_kernels_may_inhibit() -> None:
    torch.manual_seed(0)
    model = teq.EquilibriumMap(1, 3, coupling=-0.1, cooperative=False)
    kernel = model.recurrent.weight.detach()
    assert float(kernel.min()) < 0
    assert torch.equal(kernel, kernel.transpose(0, 1).flip(2, 3))


@pytest.mark.parametrize("shape", [(2, 3, 5, 5), (2, 2, 5), (2, 2, 0, 5)])
def test_refuses_other_images_in_a_sentence(shape: tuple[int, ...]) -> None:
    with pytest.raises(teq.InvalidInputError, match=r"\(batch, 2, height, width\)"):
        teq.EquilibriumMap(2)(torch.zeros(shape))


def test_refuses_an_even_kernel() -> None:
    with pytest.raises(teq.InvalidInputError, match="odd"):
        teq.EquilibriumMap(2, kernel_size=4)


def test_targets_leave_out_walls() -> None:
    found = mazes("maze-path", 9, 2, seed=0)
    assert np.array_equal(targets(found).numpy() >= 0, found.open)
