"""Certificates pass what is right and refuse what is broken, with the right reason."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

import toreqprop as teq
from toreqprop.certificate import Certificate, Reason, certify
from toreqprop.energies import Gradients
from toreqprop.gradients import ESTIMATORS, GradientEstimator, Problem
from toreqprop.solution import State


def model_and_batch(
    **options: object,
) -> tuple[teq.LoopedMLP, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    model = teq.LoopedMLP(10, 24, 4, **{"radius": 0.95, **options})  # type: ignore[arg-type]
    with torch.no_grad():
        model.recurrent.parametrizations.weight.original.mul_(30)
    return model, torch.randn(16, 10), torch.randint(0, 4, (16,))


def check(**options: object) -> Certificate:
    return certify(*model_and_batch(**options))


@pytest.mark.parametrize("name", ["centered", "holomorphic", "vector_field", "implicit"])
def test_good_estimators_pass_at_their_defaults_in_float32(name: str) -> None:
    certificate = check(gradient=ESTIMATORS[name]())
    assert certificate.ok, certificate.verdict
    assert certificate.min_cosine >= 0.99
    assert certificate.verdict.startswith("PASS")


def test_every_estimator_but_the_unrolled_passes_when_softened() -> None:
    for name, cls in ESTIMATORS.items():
        model, x, y = model_and_batch(gradient=cls().softer(30), tol=1e-9, max_steps=3000)
        certificate = certify(model.double(), x.double(), y)
        assert certificate.ok == (name != "unrolled"), (name, certificate.verdict)


def test_reports_every_tensor_but_the_readout_and_every_phase() -> None:
    certificate = check()
    assert {t.name for t in certificate.tensors} == {
        "input.weight",
        "input.bias",
        "recurrent.parametrizations.weight.original",
    }
    assert [p.phase for p in certificate.phases] == ["free", "nudged", "nudged"]
    assert all(p.residual <= 1e-3 for p in certificate.phases)
    assert certificate.asymmetry < 1e-12
    assert 0 < certificate.contraction < 1
    assert certificate.contraction <= certificate.lipschitz * (1 + 1e-6)
    assert certificate.as_dict()["verdict"] == certificate.verdict


def test_contraction_is_the_exact_jacobian_norm() -> None:
    model, x, y = model_and_batch()
    state = model.double().equilibrium(x.double()).state[0]
    model.tol = 1e-11
    state = model.equilibrium(x.double()).state[0]
    jacobians = (1 - state**2)[:, :, None] * model.recurrent.weight.detach()
    exact = float(torch.linalg.matrix_norm(jacobians, 2).max())
    assert certify(model, x.double(), y).contraction == pytest.approx(exact, rel=1e-3)


def test_leaves_the_model_alone() -> None:
    model, x, y = model_and_batch()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    certify(model, x, y)
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert model.gradient == teq.CenteredEP()
    assert model.tol == 1e-3


@dataclass(frozen=True)
class WrongSign(GradientEstimator):
    def backward(self, problem: Problem, free: State, cotangent: State) -> Gradients:
        found = teq.CenteredEP().backward(problem, free, cotangent)
        return tuple(None if g is None else -g for g in found)


@dataclass(frozen=True)
class OneWrongSign(GradientEstimator):
    """Only the recurrent weight's update is flipped."""

    def backward(self, problem: Problem, free: State, cotangent: State) -> Gradients:
        *rest, recurrent = teq.CenteredEP().backward(problem, free, cotangent)
        return (*rest, None if recurrent is None else -recurrent)


@dataclass(frozen=True)
class NudgeSkipped(GradientEstimator):
    """Claims a gradient from the free phase alone (here the right one, which must not help)."""

    def backward(self, problem: Problem, free: State, cotangent: State) -> Gradients:
        silent = replace(problem, report=lambda phase, solution: None)
        return teq.ImplicitGradient().backward(silent, free, cotangent)


@dataclass(frozen=True)
class NudgeOfZero(GradientEstimator):
    """Runs the phases, but with a nudge of strength zero."""

    def backward(self, problem: Problem, free: State, cotangent: State) -> Gradients:
        nothing = tuple(torch.zeros_like(g) for g in cotangent)
        return teq.CenteredEP().backward(problem, free, nothing)


@dataclass(frozen=True)
class SecretlyUnrolled(GradientEstimator):
    """Backpropagates through the relaxation inside backward and calls it EP."""

    def backward(self, problem: Problem, free: State, cotangent: State) -> Gradients:
        system = problem.system
        with torch.enable_grad():
            leaves = [
                t.detach().requires_grad_(w)
                for t, w in zip((system.x, *system.params), problem.wants, strict=True)
            ]
            state = teq.UnrolledGradient(50).trajectory(system.field, leaves[0], tuple(leaves[1:]))
            asked = [t for t, w in zip(leaves, problem.wants, strict=True) if w]
            found = iter(torch.autograd.grad(state, asked, cotangent))
        return tuple(next(found) if w else None for w in problem.wants)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (WrongSign(), Reason.WRONG_SIGN),
        (OneWrongSign(), Reason.WRONG_SIGN),
        (NudgeSkipped(), Reason.NO_NUDGE),
        (NudgeOfZero(), Reason.NO_NUDGE),
        (SecretlyUnrolled(), Reason.NO_NUDGE),
        (teq.UnrolledGradient(50), Reason.UNROLLED),
    ],
    ids=lambda b: type(b).__name__ if isinstance(b, GradientEstimator) else b.name,
)
def test_broken_estimators_fail_loudly(broken: GradientEstimator, reason: Reason) -> None:
    certificate = check(gradient=broken)
    assert not certificate.ok
    assert reason in certificate.reasons
    assert certificate.verdict.startswith("FAIL")


def test_a_model_that_unrolls_its_forward_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The estimator says CenteredEP, but the graph goes through the trajectory."""
    import toreqprop.models.base as base

    monkeypatch.setattr(
        base,
        "equilibrium",
        lambda settings, x, params: teq.UnrolledGradient(50).trajectory(settings.field, x, params),
    )
    certificate = check()
    assert certificate.reasons == (Reason.UNROLLED,)


def test_residual_too_large() -> None:
    certificate = check(tol=0.3, gradient=teq.OneSidedEP(0.01))
    assert Reason.RESIDUAL in certificate.reasons


def test_beta_too_large() -> None:
    certificate = check(gradient=teq.OneSidedEP(2.0), tol=1e-6)
    assert certificate.reasons == (Reason.BETA,)
    assert check(gradient=teq.OneSidedEP(0.005), tol=1e-6).ok


def test_beta_below_float_precision() -> None:
    certificate = check(gradient=teq.CenteredEP(1e-7))
    assert Reason.PRECISION in certificate.reasons


def test_asymmetric_jacobian() -> None:
    certificate = check(symmetric=False, gradient=teq.VectorFieldEP(correction=False))
    assert Reason.ASYMMETRIC in certificate.reasons
    assert certificate.asymmetry > 0.1
    assert check(symmetric=False).ok


def test_not_contracting() -> None:
    model, x, y = model_and_batch(spectral_norm=False, on_failure="ignore", max_steps=300)
    with torch.no_grad():
        model.recurrent.parametrizations.weight.original.mul_(2)
    certificate = certify(model, 0.1 * x, y)
    assert certificate.contraction > 1
    assert Reason.NOT_CONTRACTING in certificate.reasons
