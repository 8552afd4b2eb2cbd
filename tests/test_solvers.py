"""Every solver in the registry: the same equilibrium, honest residuals, proven bounds."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import toreqprop as teq
from tests.problems import ENERGY_PROBLEMS, KnownProblem, contracting
from toreqprop.energies import (
    DenseEnergy,
    DenseField,
    LinearCoupling,
    LinearNudge,
    StackEnergy,
    System,
)
from toreqprop.energies.system import sample_norm
from toreqprop.gradients import ESTIMATORS
from toreqprop.solution import Status
from toreqprop.solvers import SOLVERS, Anderson, FixedPoint, Solver, Trace, solve

GENERAL = sorted(set(SOLVERS) - {"gauss_seidel"})  # sweeps need layers; tested on their own below


@pytest.fixture(params=GENERAL)
def solver(request: pytest.FixtureRequest) -> Solver:
    return SOLVERS[request.param]()


def dense_system(size: int, norm: float, seed: int, batch: int = 4) -> System:
    generator = torch.Generator().manual_seed(seed)
    weight_in = torch.eye(size, dtype=torch.float64)
    x = torch.randn(batch, size, dtype=torch.float64, generator=generator)
    recurrent = contracting(size, seed, symmetric=True, norm=norm)
    bias = torch.zeros(size, dtype=torch.float64)
    return System.bind(DenseEnergy(), x, (weight_in, bias, recurrent), contraction=norm)


def exact_equilibrium(system: System) -> torch.Tensor:
    """Newton's method on ``s − f(s)`` with dense Jacobians, to machine precision."""
    (state,) = system.initial_state()
    weight = system.params[2]
    for _ in range(100):
        state = system.map((state,))[0]
    for _ in range(50):
        image = system.map((state,))[0]
        slope = 1 - image**2
        jacobian = torch.eye(state.shape[1], dtype=torch.float64) - slope[:, :, None] * weight
        step = torch.linalg.solve(jacobian, (image - state).unsqueeze(2)).squeeze(2)
        state = state + step
        if float(step.abs().max()) < 1e-16:
            break
    return state


@pytest.mark.parametrize("problem", ENERGY_PROBLEMS, ids=lambda p: p.name)
def test_every_solver_reaches_the_same_equilibrium(solver: Solver, problem: KnownProblem) -> None:
    system = System.bind(problem.field, problem.x, problem.params)
    solution = solve(system, system.initial_state(), solver.limited(1e-11, 5000))
    assert solution.status is Status.CONVERGED
    for found, known in zip(solution.state, problem.equilibrium(), strict=True):
        assert torch.allclose(found, known, atol=1e-9)


def test_residual_is_the_fixed_point_residual(solver: Solver) -> None:
    system = dense_system(8, 0.8, 0, batch=1)  # one sample: nothing is frozen before the end
    trace = Trace(keep_states=True)
    solution = solve(system, system.initial_state(), solver.limited(1e-6, 500), trace=trace)
    last, factor = trace.states[-1], system.contraction
    gap = sample_norm((system.map(last)[0] - last[0],))
    size = sample_norm(system.map(last))
    # Times the contraction factor: then it bounds the residual of what is returned.
    assert torch.allclose(trace.residuals[-1], factor * gap / size, rtol=1e-6)
    assert torch.allclose(solution.residual, factor * gap / size, rtol=1e-6)
    after = sample_norm((system.map(solution.state)[0] - solution.state[0],))
    assert bool((after <= solution.residual * size * (1 + 1e-9)).all())
    assert bool((solution.residual <= 1e-6).all())
    assert len(trace.residuals) == solution.steps


def test_energy_never_increases_along_gradient_descent() -> None:
    for norm, seed in ((0.8, 0), (0.95, 1), (5.0, 2), (20.0, 3)):
        system = dense_system(10, norm, seed)
        generator = torch.Generator().manual_seed(seed)
        start = (torch.rand(4, 10, dtype=torch.float64, generator=generator) * 1.8 - 0.9,)
        trace = Trace(keep_energies=True)
        solve(system, start, teq.GradientDescent(tol=1e-9, max_steps=300), trace=trace)
        energies = torch.stack(trace.energies)
        # One rounding of a sum over ten neurons.
        assert float((energies[1:] - energies[:-1]).max()) <= 1e-12
        assert float((energies[0] - energies[-1]).min()) > 1e-3


def test_plain_iteration_can_raise_the_energy() -> None:
    """The check above is not vacuous: without spectral control a fixed-point step does raise it."""
    system = dense_system(10, 5.0, 2)
    generator = torch.Generator().manual_seed(2)
    start = (torch.rand(4, 10, dtype=torch.float64, generator=generator) * 1.8 - 0.9,)
    trace = Trace(keep_energies=True)
    solve(system, start, FixedPoint(tol=1e-9, max_steps=50), trace=trace)
    energies = torch.stack(trace.energies)
    assert float((energies[1:] - energies[:-1]).max()) > 1e-3


def test_descent_also_holds_under_a_nudge() -> None:
    system = dense_system(10, 0.9, 4)
    direction = torch.randn(4, 10, dtype=torch.float64)
    nudged = system.nudged(LinearNudge((direction,), 0.5))
    trace = Trace(keep_energies=True)
    solve(nudged, nudged.initial_state(), teq.GradientDescent(tol=1e-9, max_steps=300), trace=trace)
    energies = torch.stack(trace.energies)
    assert float((energies[1:] - energies[:-1]).max()) <= 1e-12


def test_gradient_descent_refuses_a_field_without_energy() -> None:
    symmetric = dense_system(4, 0.5, 0)
    field = System.bind(DenseField(), symmetric.x, symmetric.params)
    with pytest.raises(teq.UnsupportedModelError, match="FixedPoint"):
        solve(field, field.initial_state(), teq.GradientDescent())


def test_converged_samples_are_frozen(solver: Solver) -> None:
    """An easy sample's result does not change with the company it keeps."""
    system = dense_system(8, 0.95, 5)
    easy = system.x.clone()
    easy[0] *= 20  # saturated neurons settle at once

    def relax(x: torch.Tensor) -> teq.Solution:
        bound = System.bind(system.field, x, system.params)
        return solve(bound, bound.initial_state(), solver.limited(1e-4, 2000))

    together, alone = relax(easy), relax(easy[:1])
    assert alone.steps < together.steps
    assert torch.allclose(together.state[0][0], alone.state[0][0], rtol=0, atol=1e-14)


def test_stops_at_max_steps_and_says_so(solver: Solver) -> None:
    system = dense_system(8, 0.95, 6)
    solution = solve(system, system.initial_state(), solver.limited(1e-12, 3))
    assert solution.steps == 3
    assert solution.status is Status.MAX_STEPS
    assert "max_steps" in solution.status.value
    assert solution.worst_residual > 1e-12


def looped(weight: torch.Tensor, **options: object) -> teq.LoopedMLP:
    """A network with this recurrent matrix, driven weakly, whatever its norm."""
    generator = torch.Generator().manual_seed(0)
    model = teq.LoopedMLP(
        5, len(weight), 3, spectral_norm=False, on_failure="ignore", generator=generator, **options
    )  # type: ignore[arg-type]
    with torch.no_grad():
        model.recurrent.raw.copy_(weight)
        model.input.bias.zero_()
    return model


@pytest.mark.parametrize("kernel", ["auto", "torch", "numpy"])
@pytest.mark.parametrize(
    ("factor", "steps", "wanted"),
    [
        (-1.5, 100, Status.CYCLING),
        (1.5, 100, Status.CONVERGED),
        (-0.5, 100, Status.CONVERGED),
        (-0.95, 10, Status.MAX_STEPS),  # swings, and dies out by a twentieth a step
    ],
)
def test_a_cycle_of_period_two_is_a_status(
    kernel: str, factor: float, steps: int, wanted: Status
) -> None:
    x = 0.2 * torch.randn(6, 5, generator=torch.Generator().manual_seed(1))
    model = looped(factor * torch.eye(8), kernel=kernel, max_steps=steps, tol=1e-4)
    assert model.equilibrium(x).status is wanted
    model.solver = FixedPoint(damping=0.5, tol=1e-4)  # what its sentence says to do
    assert model.equilibrium(x).status is Status.CONVERGED


def test_a_longer_cycle_is_none_of_period_two() -> None:
    turn = torch.tensor([[0.54, -0.84], [0.84, 0.54]])
    model = looped(1.5 * torch.block_diag(turn, turn), symmetric=False)
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
    assert model.equilibrium(0.1 * x).status is Status.MAX_STEPS


def test_divergence_is_a_status() -> None:
    system = dense_system(4, 0.5, 0)
    broken = System.bind(system.field, system.x * float("inf"), system.params)
    solution = solve(broken, broken.initial_state(), FixedPoint())
    assert solution.status is Status.DIVERGED


def test_anderson_needs_fewer_evaluations_where_contraction_is_weak() -> None:
    system = dense_system(30, 0.98, 7)
    system = System.bind(system.field, 0.05 * system.x, system.params)
    counts = {
        s: solve(system, system.initial_state(), s.limited(1e-8, 5000)).steps
        for s in (FixedPoint(), teq.Anderson())
    }
    assert counts[teq.Anderson()] < 0.5 * counts[FixedPoint()]


def test_a_sample_whose_residual_grew_takes_a_plain_step() -> None:
    """The second sample was thrown; the first goes on as it would have without it."""
    system, solver = dense_system(6, 0.9, seed=0, batch=2), Anderson(2, careful=True)
    state, memory = system.initial_state(), ()
    for _ in range(3):
        state, memory = solver.step(system, state, system.map(state), memory)
    right, _ = solver.step(system, state, system.map(state), memory)
    thrown = (state[0] + torch.tensor([[0.0], [3.0]]),)
    image = system.map(thrown)
    found, _ = solver.step(system, thrown, image, memory)
    torch.testing.assert_close(found[0][0], right[0][0])
    torch.testing.assert_close(found[0][1], image[0][1])
    assert not torch.allclose(right[0], system.map(state)[0])  # others are extrapolated


def test_residuals_that_line_up_are_not_extrapolated_from() -> None:
    """Two residuals that hardly differ ask for a step of thousands of times their size."""
    system = dense_system(3, 0.5, seed=0, batch=1)
    point, gap = torch.zeros(1, 3), torch.tensor([[1e-3, 0.0, 0.0]])
    memory = (point - 1e-3, gap * (1 + 1e-4))
    found = [
        Anderson(2, careful=careful).step(system, (point,), (point + gap,), memory)[0][0]
        for careful in (True, False)
    ]
    torch.testing.assert_close(found[0], point + gap)
    assert not torch.allclose(found[1], point + gap)


@settings(max_examples=150, deadline=None)
@given(
    size=st.integers(1, 24),
    norm=st.floats(0.01, 0.99),
    seed=st.integers(0, 10_000),
    tol=st.sampled_from([1e-1, 1e-2, 1e-4, 1e-8, 1e-13]),
    name=st.sampled_from(GENERAL),
    stop=st.integers(1, 40),
)
def test_error_bound_is_never_violated(
    size: int, norm: float, seed: int, tol: float, name: str, stop: int
) -> None:
    """The proven bound against a solution to machine precision, converged or not."""
    system = dense_system(size, norm, seed)
    solution = solve(system, system.initial_state(), SOLVERS[name](tol=tol, max_steps=stop))
    distance = sample_norm((solution.state[0] - exact_equilibrium(system),))
    # Newton itself stops within a few roundings of the equilibrium.
    newton = 1e-15 * size / (1 - norm)
    assert bool((distance <= solution.error_bound + newton).all())
    assert bool(torch.isfinite(solution.error_bound).all())


def test_error_bound_is_not_vacuous() -> None:
    system = dense_system(16, 0.6, 3)
    solution = solve(system, system.initial_state(), FixedPoint(tol=1e-4, max_steps=100))
    distance = sample_norm((solution.state[0] - exact_equilibrium(system),))
    assert float((solution.error_bound / distance).min()) < 50


def test_no_bound_without_contraction() -> None:
    model = teq.LoopedMLP(4, 6, 2, spectral_norm=False, on_failure="ignore")
    with torch.no_grad():
        model.recurrent.raw.mul_(100)
    assert model.lipschitz() > 1
    assert bool(torch.isinf(model.equilibrium(torch.randn(3, 4)).error_bound).all())


@pytest.mark.parametrize(
    "build",
    [
        lambda: FixedPoint(damping=0.0),
        lambda: FixedPoint(damping=1.5),
        lambda: teq.GradientDescent(step_size=-1),
        lambda: teq.Anderson(memory=0),
    ],
)
def test_bad_solver_settings(build: object) -> None:
    with pytest.raises(teq.InvalidInputError):
        build()  # type: ignore[operator]


def test_sweeps_need_layers() -> None:
    system = dense_system(4, 0.5, 0)
    with pytest.raises(teq.UnsupportedModelError, match="FixedPoint"):
        solve(system, system.initial_state(), teq.GaussSeidel())


def deep_system(gain: float, contraction: float | None = None) -> System:
    torch.manual_seed(0)
    sizes = [6, 8, 5, 7, 4]
    params = []
    for below, above in itertools.pairwise(sizes):
        weight = torch.randn(above, below, dtype=torch.float64)
        weight = weight * gain / torch.linalg.matrix_norm(weight, 2)
        params += [weight, 0.1 * torch.randn(above, dtype=torch.float64)]
    x = torch.randn(3, 6, dtype=torch.float64)
    return System.bind(StackEnergy((LinearCoupling(),) * 4), x, tuple(params), contraction)


def test_sweeps_reach_the_same_equilibrium_in_fewer_evaluations() -> None:
    system = deep_system(0.55)
    plain = solve(system, system.initial_state(), FixedPoint(tol=1e-10, max_steps=5000))
    sweepers = teq.GaussSeidel(), teq.GaussSeidel("sequential"), Anderson(4, teq.GaussSeidel())
    for solver in sweepers:
        found = solve(system, system.initial_state(), solver.limited(1e-10, 5000))
        assert found.converged
        assert not solver.plain
        assert found.steps < 0.7 * plain.steps
        for a, b in zip(found.state, plain.state, strict=True):
            assert torch.allclose(a, b, atol=1e-8)


def test_an_unknown_order_of_sweeps_is_refused() -> None:
    with pytest.raises(teq.InvalidInputError, match="sequential"):
        teq.GaussSeidel("backwards")  # type: ignore[arg-type]


def test_sweeps_never_raise_the_energy_even_without_contraction() -> None:
    system = deep_system(6.0)
    trace = Trace(keep_energies=True)
    start = tuple(2 * torch.rand_like(s) - 1 for s in system.initial_state())
    solution = solve(system, start, teq.GaussSeidel(tol=1e-9, max_steps=500), trace=trace)
    energies = torch.stack(trace.energies)
    assert float((energies[1:] - energies[:-1]).max()) <= 1e-12
    assert solution.converged


def test_sweeps_have_a_proven_bound_too() -> None:
    gain = 0.5
    factor = 2 * gain * math.cos(math.pi / 5)  # four layers, equal couplings
    system = deep_system(gain, contraction=factor)
    exact = solve(system, system.initial_state(), FixedPoint(tol=1e-15, max_steps=5000)).state
    for tol in (1e-1, 1e-3, 1e-6):
        solution = solve(system, system.initial_state(), teq.GaussSeidel(tol=tol, max_steps=500))
        gaps = tuple(a - b for a, b in zip(solution.state, exact, strict=True))
        assert bool((sample_norm(gaps) <= solution.error_bound + 1e-14).all())
        assert float(solution.error_bound.max()) < 100 * tol


@pytest.mark.parametrize("estimator", sorted(ESTIMATORS))
@pytest.mark.parametrize("solver_name", sorted(SOLVERS))
def test_every_estimator_and_solver_agree_or_say_why_not(estimator: str, solver_name: str) -> None:
    """Whatever is combined by name gives plain iteration's gradient or a sentence."""
    torch.manual_seed(0)
    model = teq.HopfieldMLP(
        [4, 6, 5, 3], gradient=ESTIMATORS[estimator](), solver=FixedPoint(), tol=1e-9,
        max_steps=2000, radius=0.5,
    ).double()  # fmt: skip
    x, y = torch.randn(5, 4, dtype=torch.float64), torch.randint(0, 3, (5,))

    def gradient() -> torch.Tensor:
        model.zero_grad()
        torch.manual_seed(1)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])  # type: ignore[union-attr]

    expected = gradient()
    model.solver = SOLVERS[solver_name](tol=1e-9, max_steps=2000)
    if (estimator, solver_name) in REFUSED:
        with pytest.raises(teq.UnsupportedModelError, match="use solver="):
            gradient()
        return
    # Both stop at a residual of 1e-9, which a nudge of 0.05 or more divides.
    assert torch.allclose(gradient(), expected, rtol=0, atol=1e-6)


REFUSED = {("holomorphic", "gradient_descent"), ("vector_field", "gradient_descent")}
"""Descent needs a real energy."""
