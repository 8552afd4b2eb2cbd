"""The PyTorch solvers: against each other, against the co-content, against finite differences."""

from __future__ import annotations

import pytest
import torch

from tests.hardware.circuits import (
    STRONG,
    cosine,
    cosines,
    difference,
    finite_differences,
    random_problem,
    small_problem,
)
from toreqprop.errors import ConvergenceError, InvalidInputError
from toreqprop.hardware import (
    BlockDescent,
    CircuitStatus,
    Faults,
    Newton,
    ResistiveNetwork,
    co_content,
    conductance_gradients,
    nudged_gradients,
    nudged_phases,
    solve_circuit,
    updated,
)
from toreqprop.hardware.wired import wire


@pytest.mark.parametrize("seed", range(12))
def test_newton_and_block_descent_agree(seed: int) -> None:
    problem = random_problem(seed)
    newton = problem.solve(solve_circuit)
    descent = problem.solve(solve_circuit, method=BlockDescent())
    assert newton.converged
    assert descent.converged
    # Block descent converges linearly: its last move of 1e-12 V is a fraction of what is left.
    assert difference(newton, descent) < 1e-9


@pytest.mark.parametrize("seed", range(12))
def test_no_current_is_left_over(seed: int) -> None:
    problem = random_problem(seed)
    solution = problem.solve(solve_circuit)
    wired = wire(
        problem.network,
        problem.conductances,
        problem.x,
        problem.target,
        problem.beta,
        problem.faults,
    )
    for current, slope in zip(*wired.residual(solution.nodes), strict=True):
        assert float((current / slope).abs().max()) < 1e-11


@pytest.mark.parametrize("inverting", [False, True])
def test_co_content_is_the_energy(inverting: bool) -> None:
    """Its derivative is the current at each node, whatever the voltages."""
    network = ResistiveNetwork((3, 5, 4, 2), inverting=inverting, upper_bias=True, clamp=0.1)
    faults = Faults.draw(network, 1, conductance=0.4, saturation=0.7, offset=0.05)
    conductances = network.random_conductances(1)
    x, target = torch.randn(6, 3).double(), torch.rand(6, 2).double()
    nodes = tuple(0.3 * torch.randn(6, n).double() for n in network.sizes[1:])
    free = tuple(v.requires_grad_() for v in nodes)
    energy = co_content(network, conductances, x, free, target, 1e-5, faults)
    slopes = torch.autograd.grad(energy.sum(), free)
    currents, _ = wire(network, conductances, x, target, 1e-5, faults).residual(nodes)
    for layer, (slope, current) in enumerate(zip(slopes, currents, strict=True)):
        expected = network.weight(layer) * current.detach()
        torch.testing.assert_close(slope, expected, rtol=1e-9, atol=1e-18)


@pytest.mark.parametrize(
    "options", [{}, {"inverting": True, "upper_bias": True}, {"clamp": 0.2, "gain": 2.0}]
)
def test_gradient_is_that_of_finite_differences(options: dict) -> None:
    network = ResistiveNetwork((2, 4, 3, 2), input_gain=3.0, **options)
    conductances = network.random_conductances(2)
    x, target = torch.randn(4, 2).double(), torch.rand(4, 2).double()
    expected = finite_differences(network, conductances, x, target, solve_circuit)
    found = nudged_gradients(network, conductances, x, target, 1e-7)
    assert min(cosines(found, expected)) > 0.999999
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-4 * float(b.abs().max()))


def test_bias_of_the_gradient_falls_as_beta_squared() -> None:
    problem = small_problem()
    exact = nudged_gradients(*problem, 1e-8)
    errors = []
    for beta in (4e-6, 2e-6):
        found = nudged_gradients(*problem, beta)
        errors.append(
            float(torch.cat([(a - b).flatten() for a, b in zip(found, exact, strict=True)]).norm())
        )
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.05)


@pytest.mark.parametrize("kind", ["conductance", "saturation", "offset"])
def test_faults_that_keep_an_energy_keep_the_gradient(kind: str) -> None:
    network, conductances, x, target = small_problem()
    faults = Faults.draw(network, 1, **{kind: 0.3})
    found = nudged_gradients(network, conductances, x, target, 1e-7, faults)
    expected = finite_differences(network, conductances, x, target, solve_circuit, faults)
    if faults.conductance is not None:  # the circuit measures the slope of what is really there
        expected = tuple(e / f for e, f in zip(expected, faults.conductance, strict=True))
    assert min(cosines(found, expected)) > 0.999999


def test_an_error_of_the_feedback_gain_bends_the_gradient() -> None:
    network, conductances, x, target = small_problem()
    measured = []
    for spread in (0.05, 1.0):
        faults = Faults.draw(network, 1, down=spread)
        expected = finite_differences(network, conductances, x, target, solve_circuit, faults)
        found = nudged_gradients(network, conductances, x, target, 1e-7, faults)
        measured.append(cosine(found, expected))
    assert 1 > measured[0] > 0.999 > 0.9 > measured[1]


def test_single_precision_agrees() -> None:
    network, conductances, x, target = small_problem()
    exact = solve_circuit(network, conductances, x, target, 1e-6)
    single = tuple(g.float() for g in conductances)
    rough = solve_circuit(network, single, x.float(), target.float(), 1e-6)
    assert rough.converged
    assert rough.output.dtype is torch.float32
    torch.testing.assert_close(rough.output.double(), exact.output, rtol=0, atol=1e-5)


def test_starting_from_the_solution_takes_one_step() -> None:
    network, conductances, x, _ = small_problem()
    first = solve_circuit(network, conductances, x)
    again = solve_circuit(network, conductances, x, initial=first.nodes)
    assert again.steps < first.steps
    assert difference(first, again) < 1e-12


def test_too_few_steps_is_a_status_then_an_error() -> None:
    network, conductances, x, target = small_problem()
    short = BlockDescent(max_steps=1)
    solution = solve_circuit(network, conductances, x, method=short)
    assert solution.status is CircuitStatus.MAX_STEPS

    def solve(*arguments: object) -> object:
        return solve_circuit(*arguments, method=short)  # type: ignore[arg-type]

    with pytest.raises(ConvergenceError, match="max_steps"):
        nudged_phases(network, conductances, x, target, 1e-6, solve=solve)  # type: ignore[arg-type]


def test_faults_are_drawn_independently_of_each_other() -> None:
    network = ResistiveNetwork((4, 6, 3))
    alone = Faults.draw(network, 5, saturation=0.7)
    together = Faults.draw(network, 5, **STRONG)
    assert alone.saturation is not None
    assert together.saturation is not None
    assert torch.equal(alone.saturation[0], together.saturation[0])
    assert alone.conductance is None


def test_conductances_stay_in_range() -> None:
    g = (torch.tensor([[1e-5, 1e-6]]),)
    moved = updated(g, (torch.tensor([[1.0, -1.0]]),), 1e-3, low=1e-7, high=1e-4)
    torch.testing.assert_close(moved[0], torch.tensor([[1e-7, 1e-4]]))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"sizes": (4,)}, "sizes"),
        ({"sizes": (4, 0, 2)}, "sizes"),
        ({"sizes": (4, 2), "gain": 0.0}, "gain"),
        ({"sizes": (4, 2), "clamp": -0.1}, "clamp"),
        ({"sizes": (4, 2), "celsius": -300.0}, "celsius"),
    ],
)
def test_bad_networks_are_refused(options: dict, word: str) -> None:
    with pytest.raises(InvalidInputError, match=word):
        ResistiveNetwork(**options)


def test_bad_arguments_are_refused() -> None:
    network, conductances, x, target = small_problem()
    with pytest.raises(InvalidInputError, match="2 crossbars"):
        solve_circuit(network, conductances[:1], x)
    with pytest.raises(InvalidInputError, match=r"crossbar 2 must have shape \(3, 6\)"):
        solve_circuit(network, (conductances[0], conductances[1].mT), x)
    with pytest.raises(InvalidInputError, match=">= 0 S"):
        solve_circuit(network, (-conductances[0], conductances[1]), x)
    with pytest.raises(InvalidInputError, match="float"):
        solve_circuit(network, (0 * conductances[0], conductances[1]), x)
    with pytest.raises(InvalidInputError, match=r"\(batch, 4\)"):
        solve_circuit(network, conductances, x[:, :3])
    with pytest.raises(InvalidInputError, match="not finite"):
        solve_circuit(network, conductances, x * float("nan"))
    with pytest.raises(InvalidInputError, match="one target per sample"):
        solve_circuit(network, conductances, x, target[:2], 1e-6)
    with pytest.raises(InvalidInputError, match="well below"):
        solve_circuit(network, conductances, x, target, -1e-2)
    with pytest.raises(InvalidInputError, match="beta"):
        nudged_gradients(network, conductances, x, target, -1e-6)
    phase = solve_circuit(network, conductances, x).phase
    with pytest.raises(InvalidInputError, match="beta"):
        conductance_gradients(network, phase, phase, 0.0)
    with pytest.raises(InvalidInputError, match=r"faults\.up"):
        solve_circuit(network, conductances, x, faults=Faults(up=(torch.ones(2),)))
    with pytest.raises(InvalidInputError, match="spread"):
        Faults.draw(network, up=-0.1)
    with pytest.raises(InvalidInputError, match="low"):
        updated(conductances, conductances, 1.0, low=1.0, high=0.5)
    with pytest.raises(InvalidInputError, match="tol"):
        Newton(tol=0.0)
    with pytest.raises(InvalidInputError, match="max_steps"):
        BlockDescent(max_steps=0)
