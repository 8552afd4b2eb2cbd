"""Every estimator in the registry, on every problem it can serve, against dense oracles."""

from __future__ import annotations

import math

import pytest
import torch

from tests.problems import ENERGY_PROBLEMS, PROBLEMS, KnownProblem, cosine, looped, relative_error
from toreqprop.errors import UnsupportedModelError
from toreqprop.gradients import (
    ESTIMATORS,
    CenteredEP,
    ContinualEP,
    GradientEstimator,
    HolomorphicEP,
    OneSidedEP,
    UnrolledGradient,
    VectorFieldEP,
)

FORWARD_STEPS = 400  # contraction at most 0.95: 0.95^400 = 1e-9, far below every bound here


def default(name: str) -> GradientEstimator:
    return UnrolledGradient(FORWARD_STEPS) if name == "unrolled" else ESTIMATORS[name]()


def serve(problem: KnownProblem, estimator: GradientEstimator) -> tuple[torch.Tensor, ...]:
    """Gradients, or skip where the library says the pair does not go together."""
    try:
        return problem.gradients(estimator)
    except UnsupportedModelError as error:
        message = str(error)
    # The error must name an estimator that works here.
    named = [cls for cls in ESTIMATORS.values() if f"{cls.__name__}(" in message]
    assert named, f"the error names no estimator: {message}"
    for cls in named:
        problem.gradients(cls())
    pytest.skip(f"{problem.name} cannot serve {type(estimator).__name__}")


@pytest.fixture(params=sorted(ESTIMATORS))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=PROBLEMS, ids=lambda p: p.name)
def problem(request: pytest.FixtureRequest) -> KnownProblem:
    return request.param


def test_softened_estimator_is_exact(name: str, problem: KnownProblem) -> None:
    """With a nudge 1000 times weaker than its default, every estimator gives the gradient.

    First-order biases are then at most 1e-3 of order one; the bound leaves them a factor ten.
    """
    found = serve(problem, default(name).softer(1000))
    exact = problem.exact_gradients()
    assert relative_error(found, exact) < 1e-2
    for a, b in zip(found, exact, strict=True):
        assert cosine(a, b) > 0.9999


def test_default_estimator_points_downhill(name: str, problem: KnownProblem) -> None:
    """At its default strength the estimate has a clearly positive cosine with every gradient."""
    for a, b in zip(serve(problem, default(name)), problem.exact_gradients(), strict=True):
        assert cosine(a, b) > 0.9


def test_gradient_is_linear_in_the_loss_scale(name: str, problem: KnownProblem) -> None:
    torch.manual_seed(1)  # RandomSignEP must draw the same sign both times
    plain = serve(problem, default(name))
    if not ESTIMATORS[name].scale_free:
        pytest.skip(f"{name} declares that it is not scale-free")
    for scale in (1e-6, 1e4, -1.0):
        torch.manual_seed(1)
        scaled = problem.gradients(default(name), scale=scale)
        if scale < 0:
            # A flipped loss flips the nudge: odd-order biases change sign, so compare directions.
            assert all(cosine(a, b) < -0.5 for a, b in zip(scaled, plain, strict=True))
        else:
            scaled = tuple(g / scale for g in scaled)
            # Float64 rounding, magnified by 1/β.
            assert relative_error(scaled, plain) < 1e-9


def test_zero_cotangent_gives_zero_gradient(name: str) -> None:
    problem = ENERGY_PROBLEMS[0]
    for gradient in problem.gradients(default(name), scale=0.0):
        assert torch.equal(gradient, torch.zeros_like(gradient))


@pytest.mark.parametrize("case", ENERGY_PROBLEMS, ids=lambda p: p.name)
@pytest.mark.parametrize(
    ("estimator", "order"),
    [
        (OneSidedEP(0.05), 1),
        (OneSidedEP(0.05, negative=True), 1),
        (CenteredEP(0.05), 2),
        (VectorFieldEP(0.05), 2),
    ],
    ids=["one_sided", "one_sided_negative", "centered", "vector_field"],
)
def test_bias_falls_with_beta_at_its_order(
    case: KnownProblem, estimator: GradientEstimator, order: int
) -> None:
    """The slope of log error against log β over five betas is the order, ± 0.15."""
    if type(case.field.activation).__name__ == "HardSigmoid" and order == 2:
        pytest.skip("inside the box the system is linear and the centred estimate is exact")
    exact = case.exact_gradients()
    factors = (1, 2, 4, 8, 16)
    errors = [relative_error(case.gradients(estimator.softer(f)), exact) for f in factors]
    points = [(math.log(1 / f), math.log(e)) for f, e in zip(factors, errors, strict=True)]
    slope = _least_squares_slope(points)
    assert slope == pytest.approx(order, abs=0.15), errors


def test_bias_has_the_declared_order(name: str) -> None:
    """``order`` is a claim of every estimator that has a nudge, and it is measured here."""
    order = ESTIMATORS[name].order
    if order is None:
        assert default(name).softer(10) == default(name)  # no nudge to weaken
        return
    case = looped()
    exact = case.exact_gradients()
    # High orders reach rounding soon, low ones need a weak nudge to be asymptotic.
    factors = (0.25, 0.375, 0.5) if order > 2 else (20.0, 40.0, 80.0, 160.0)
    points = []
    for factor in factors:
        torch.manual_seed(1)  # one sign for RandomSignEP
        error = relative_error(case.gradients(default(name).softer(factor)), exact)
        points.append((math.log(1 / factor), math.log(error)))
    assert _least_squares_slope(points) == pytest.approx(order, abs=0.15 * max(1, order / 2))


@pytest.mark.parametrize("case", PROBLEMS[:4], ids=lambda p: p.name)
def test_holomorphic_is_a_hundred_times_better_than_centred(case: KnownProblem) -> None:
    exact = case.exact_gradients()
    centred = relative_error(case.gradients(CenteredEP(0.2)), exact)
    holomorphic = relative_error(case.gradients(HolomorphicEP(0.2, points=8)), exact)
    assert holomorphic * 100 < centred


def test_correction_makes_vector_fields_exact() -> None:
    case = looped(symmetric=False)
    exact = case.exact_gradients()
    corrected = case.gradients(VectorFieldEP(1e-3))
    plain = case.gradients(VectorFieldEP(1e-3, correction=False))
    for a, b in zip(corrected, exact, strict=True):
        assert cosine(a, b) >= 0.999999
    assert min(cosine(a, b) for a, b in zip(plain, exact, strict=True)) < 0.99


def test_two_signs_have_opposite_bias() -> None:
    case = looped()
    exact = case.exact_gradients()
    up, down = (case.gradients(OneSidedEP(0.02, negative=n)) for n in (False, True))
    mean = tuple(0.5 * (a + b) for a, b in zip(up, down, strict=True))
    assert relative_error(mean, exact) < 0.1 * relative_error(up, exact)


def test_random_sign_uses_both_signs() -> None:
    case = looped()
    seen = set()
    for seed in range(20):
        torch.manual_seed(seed)
        gradient = case.gradients(ESTIMATORS["random_sign"]())
        seen.add(float(gradient[0][0, 0]))
    assert len(seen) == 2


def test_continual_without_motion_is_one_sided() -> None:
    case = looped()
    found = case.gradients(ContinualEP(beta=0.05, rate=0.0))
    assert relative_error(found, case.gradients(OneSidedEP(0.05))) < 1e-9
    moving = case.gradients(ContinualEP(beta=0.05, rate=0.05))
    assert relative_error(moving, found) > 1e-4


def test_only_what_is_asked_is_computed(name: str) -> None:
    case = looped()
    leaves = [t.clone() for t in (case.x, *case.params)]
    leaves[2].requires_grad_()
    from toreqprop.equilibrium import Settings, equilibrium
    from toreqprop.solvers import FixedPoint

    solver = FixedPoint(tol=1e-9, max_steps=500)
    settings = Settings(case.field, solver, default(name), lambda p, s: None)
    case.loss(equilibrium(settings, leaves[0], tuple(leaves[1:])).state).backward()
    assert leaves[2].grad is not None
    assert all(leaf.grad is None for k, leaf in enumerate(leaves) if k != 2)


def _least_squares_slope(points: list[tuple[float, float]]) -> float:
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    top = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return top / sum((x - mean_x) ** 2 for x, _ in points)
