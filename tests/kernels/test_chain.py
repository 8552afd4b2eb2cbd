"""Stacks of dense layers: the compiled passes against the general path."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import toreqprop as teq

pytest.importorskip("numba")

PASSES = teq.GaussSeidel("symmetric")


def _network(
    sizes: list[int], dtype: torch.dtype, memory: int, **options: object
) -> teq.HopfieldMLP:
    """Couplings at their bounds, so that it takes many passes to settle."""
    exact = dtype == torch.float64
    tol = {"tol": 1e-10 if exact else 1e-4, "max_steps": 500}
    solver = teq.Anderson(memory, PASSES, **tol) if memory else teq.GaussSeidel("symmetric", **tol)
    torch.manual_seed(3)
    # Singular values that differ: where all are at the radius, phases settle to a few times tol.
    options = {"start": "random", **options}
    model = teq.HopfieldMLP(sizes, solver=solver, bound="exact", **options).to(dtype)
    with torch.no_grad():
        for layer in model.layers[1:]:
            layer.raw *= 4
    return model


def _trained(model: teq.HopfieldMLP, x: torch.Tensor, kernel: str) -> tuple[torch.Tensor, list]:
    """The output, the gradients, and what each relaxation ended with."""
    model.kernel = kernel
    ends: list[teq.Solution] = []
    key = model.register_relaxation_hook(lambda phase, solution: ends.append(solution))
    model.zero_grad()
    output = model(x)
    F.cross_entropy(output, torch.arange(len(x)) % output.shape[1]).backward()
    model.remove_relaxation_hook(key)
    return output.detach(), [p.grad for p in model.parameters()], ends


CASES = [
    ([8, 5, 3], "readout", 1.0),
    ([8, 12, 10, 4], "readout", 1.0),
    ([8, 12, 10, 4], "free", 1.0),
    ([8, 12, 10, 11, 9, 4], "readout", 0.5),
    ([8, 40, 33, 4], "readout", 0.1),
]


@pytest.mark.parametrize("memory", [0, 1, 2])
@pytest.mark.parametrize(("sizes", "output", "feedback"), CASES)
def test_compiled_passes_end_where_the_general_path_does(sizes, output, feedback, memory) -> None:
    model = _network(sizes, torch.float64, memory, output=output, feedback=feedback)
    x = torch.randn(7, sizes[0], dtype=torch.float64)
    fast, general = _trained(model, x, "auto"), _trained(model, x, "torch")
    assert torch.allclose(fast[0], general[0], rtol=0, atol=1e-9)
    for ours, theirs in zip(fast[1], general[1], strict=True):
        assert float((ours - theirs).norm()) <= 1e-6 * float(theirs.norm())
    assert all(solution.converged for solution in (*fast[2], *general[2]))
    # Plain passes are the same iteration, evaluation for evaluation; conjugate ones take fewer than
    # those whose residuals are mixed.
    assert fast[2][0].steps <= general[2][0].steps + (memory == 0)
    assert memory or fast[2][0].steps >= general[2][0].steps - 1
    assert float(fast[2][0].residual.max()) <= model.tol


@torch.no_grad()
@pytest.mark.parametrize("feedback", [1.0, 0.1])
def test_a_free_phase_ends_nearer_than_its_last_pass(feedback) -> None:
    """What is found has a residual below the tolerance, measured on the network itself, and is
    closer to the equilibrium than the image of the general path's last pass."""
    model = _network([8, 40, 33, 21, 4], torch.float32, 2, feedback=feedback)
    torch.manual_seed(0)
    x = torch.randn(32, 8)
    exact = model.double().equilibrium(x.double()).state
    model.float()
    model.tol = 2e-2
    params = model.system_parameters()
    drive = model.field.prepare(x, params)
    errors = []
    for kernel in ("auto", "torch"):
        model.kernel = kernel
        found = model.equilibrium(x)
        image = model.field.activate(model.field.preactivation(found.state, drive, params))
        for a, b in zip(image, found.state, strict=True):
            assert float(((a - b).norm(dim=1) / a.norm(dim=1)).max()) <= model.tol
        away = torch.cat([a - b for a, b in zip(found.state, exact, strict=True)], 1)
        errors.append(float(away.norm()))
    assert errors[0] < 0.8 * errors[1], errors


def test_both_nudged_phases_satisfy_their_own_equations() -> None:
    """Not the linearised ones: the residual at +β and −β is measured on the network itself."""
    model = _network([8, 40, 33, 4], torch.float32, 2)
    solutions = {}
    model.register_relaxation_hook(lambda phase, solution: solutions.__setitem__(phase, solution))
    x = torch.randn(6, 8)
    cotangent = torch.randn(6, 33)
    model.gradient = teq.CenteredEP(0.05)
    free = model.equilibrium(x)
    free.state[-1].backward(cotangent)
    found = solutions["nudged"]
    params = tuple(p.detach() for p in model.system_parameters())
    drive = model.field.prepare(x, params)
    direction = cotangent / cotangent.pow(2).mean(1, keepdim=True).sqrt()
    for sign, state in ((1, found.up), (-1, found.down)):
        u = list(model.field.preactivation(state, drive, params))
        u[-1] = u[-1] - sign * 0.05 * direction
        image = model.field.activate(tuple(u))
        for layer, (a, b) in enumerate(zip(image, state, strict=True)):
            error = float((a - b).norm() / found.shift[layer].norm())
            assert error < 0.05, layer  # the tolerance of a shift is ten times that of a state


def test_deep_stacks_are_extrapolated_in_both_phases() -> None:
    """Near the edge of stability, where scaling a shift layer by layer takes hundreds of passes."""
    torch.manual_seed(0)
    model = teq.HopfieldMLP.deep(8, 6, 16, 4).double()
    x = torch.randn(5, 8, dtype=torch.float64)
    fast, general = _trained(model, x, "auto"), _trained(model, x, "torch")
    for ours, theirs in zip(fast[1], general[1], strict=True):
        assert float((ours - theirs).norm()) <= 1e-3 * float(theirs.norm())
    assert fast[2][0].steps <= general[2][0].steps + 1  # first passes weigh all layers alike
    model.solver = teq.GaussSeidel("symmetric", tol=model.tol, max_steps=model.max_steps)
    plain = _trained(model, x, "auto")
    for extrapolated, swept in zip(fast[2], plain[2], strict=True):
        assert extrapolated.converged
        assert extrapolated.steps < swept.steps / 2


def test_a_sample_does_not_depend_on_its_batch() -> None:
    model = _network([8, 40, 33, 4], torch.float64, 2)
    x = torch.randn(9, 8, dtype=torch.float64) * torch.logspace(-2, 1, 9).double().unsqueeze(1)
    together = model.equilibrium(x).state
    for i in range(len(x)):
        alone = model.equilibrium(x[i : i + 1]).state
        for a, b in zip(together, alone, strict=True):
            assert torch.allclose(a[i : i + 1], b, rtol=0, atol=1e-12)


def test_what_does_not_settle_is_said() -> None:
    model = _network([8, 40, 33, 4], torch.float32, 2)
    model.solver = teq.Anderson(2, PASSES, tol=1e-6, max_steps=2)
    with pytest.warns(teq.ConvergenceWarning, match="max_steps"):
        solution = model.equilibrium(torch.randn(5, 8))
    assert solution.status is teq.Status.MAX_STEPS
    assert solution.layer in (0, 1)
    with torch.no_grad():
        model.layers[0].weight[0, 0] = float("nan")
    with pytest.warns(teq.ConvergenceWarning, match="non-finite"):
        assert model.equilibrium(torch.randn(5, 8)).status is teq.Status.DIVERGED


def test_a_start_is_used() -> None:
    model = _network([8, 40, 33, 4], torch.float64, 2)
    x = torch.randn(5, 8, dtype=torch.float64)
    first = model.equilibrium(x)
    again = model.equilibrium(x, start=tuple(s.detach() for s in first.state))
    assert again.steps < first.steps


def _least_energy(own, link, force, heat, left_out):  # type: ignore[no-untyped-def]
    """What `chain_energy.least_energy` finds, by a dense solve; without the layers ``left_out``."""
    count = 2 * len(own)
    matrix = np.zeros((count, count))
    for layer, t in enumerate(heat):
        here, below = slice(2 * layer, 2 * layer + 2), slice(2 * layer - 2, 2 * layer)
        yy, yg, gg = own[layer]
        matrix[here, here] = t * np.array([[yy, yg], [yg, gg]])
        if layer:
            matrix[here, below] = -t * link[layer, :4].reshape(2, 2)
            matrix[below, here] = matrix[here, below].T
    kept = [i for i in range(count) if i // 2 not in left_out]
    found = np.zeros(count)
    found[kept] = np.linalg.solve(matrix[np.ix_(kept, kept)], force.reshape(-1)[kept])
    return found.reshape(-1, 2)


@pytest.mark.parametrize("left_out", [(), (0,), (1,)])
def test_factors_of_shifts_make_the_energy_smallest(left_out: tuple[int, ...]) -> None:
    """As a dense solve says; a layer too small to be squared stays as it is, nothing is divided by
    it, and its neighbours are solved for without it."""
    from toreqprop.kernels.chain_energy import least_energy
    from toreqprop.kernels.compiling import compiled

    draw = np.random.default_rng(0)
    own = np.stack([[1.0, 0.2, 0.5]] * 3) + 0.05 * draw.random((3, 3))
    link, force = 0.2 * draw.standard_normal((3, 6)), 0.1 * draw.standard_normal((3, 2))
    heat, found = np.array([4.0, 2.0, 1.0]), np.ones((3, 2))
    for layer in left_out:
        own[layer] = 1e-40
    wanted = _least_energy(own, link, force, heat, left_out)
    compiled(least_energy)(own, link, force, heat, np.empty((6, 6)), found)
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-15)
    assert np.abs(wanted).max() > 0.01


def test_nothing_pulls_at_an_equilibrium() -> None:
    """There factors are zero whatever the stiffness is taken to be; and they are where energy has
    no minimum."""
    from toreqprop.kernels.chain_energy import least_energy
    from toreqprop.kernels.compiling import compiled

    least = compiled(least_energy)
    own, link, found = np.ones((2, 3)), np.zeros((2, 6)), np.ones((2, 2))
    own[:, 1], link[1, 0] = 0.1, 0.3
    assert least(own, link, np.zeros((2, 2)), np.ones(2), np.empty((4, 6)), found)
    assert not found.any()
    link[1, 0], found[:] = 1.5, 1.0
    assert not least(own, link, np.ones((2, 2)), np.ones(2), np.empty((4, 6)), found)
    assert not found.any()
