"""Certificates pass what is right and refuse what is broken, with the right reason."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import pytest
import torch

import toreqprop as teq
from toreqprop.certificate import Certificate, Reason, certify, certifying
from toreqprop.certificate.chord import Chord, fits
from toreqprop.energies import Gradients, TightBall
from toreqprop.gradients import ESTIMATORS, GradientEstimator, Problem, implicit
from toreqprop.solution import State
from toreqprop.solvers import FixedPoint, solve


def model_and_batch(
    **options: object,
) -> tuple[teq.LoopedMLP, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    model = teq.LoopedMLP(10, 24, 4, **{"radius": 0.95, **options})  # type: ignore[arg-type]
    with torch.no_grad():
        model.recurrent.raw.mul_(30)
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
        "input",
        "input.weight",
        "input.bias",
        "recurrent.raw",
    }
    assert [p.phase for p in certificate.phases] == ["free", "nudged"]
    assert all(p.residual <= 1e-3 for p in certificate.phases)
    assert certificate.asymmetry < 1e-12
    assert 0 < certificate.contraction < 1
    assert certificate.contraction <= certificate.lipschitz * (1 + 1e-6)
    assert certificate.as_dict()["verdict"] == certificate.verdict


def test_contraction_is_the_exact_jacobian_norm() -> None:
    model, x, y = model_and_batch(max_steps=1000)
    model.double().tol = 1e-11
    state = model.equilibrium(x.double()).state[0].detach()
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
            state, _ = teq.UnrolledGradient(50).trajectory(
                system.field, leaves[0], tuple(leaves[1:])
            )
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

    found = base.equilibrium
    unrolled = teq.UnrolledGradient(50)
    monkeypatch.setattr(
        base,
        "equilibrium",
        lambda settings, x, params: found(replace(settings, gradient=unrolled), x, params),
    )
    monkeypatch.setattr(base, "compiled_step", lambda *given: None)
    certificate = check()
    assert certificate.reasons == (Reason.UNROLLED,)


def test_residual_too_large() -> None:
    certificate = check(tol=0.3, gradient=teq.OneSidedEP(0.01))
    assert Reason.RESIDUAL in certificate.reasons


def test_beta_too_large() -> None:
    certificate = check(gradient=teq.OneSidedEP(0.5), tol=1e-6)
    assert certificate.reasons == (Reason.BETA,)
    assert check(gradient=teq.OneSidedEP(0.005), tol=1e-6).ok


def test_a_tiny_beta_costs_no_digits() -> None:
    assert check(gradient=teq.CenteredEP(1e-7), tol=1e-5).min_cosine > 0.9999


def test_below_float_precision() -> None:
    """Continual EP subtracts states, so there a tiny nudge is lost in float32."""
    gradient = teq.ContinualEP(beta=1e-7, rate=0.0)
    certificate = check(gradient=gradient, tol=1e-8, max_steps=1000)
    assert certificate.reasons[0] is Reason.PRECISION
    assert certificate.phases[-1].status == "UNRESOLVED"


def test_the_oracle_is_at_the_models_own_equilibrium() -> None:
    """Two attractors: the model starts in one, a copy that starts afresh may end in the other."""
    torch.manual_seed(0)
    model = teq.LoopedMLP(2, 6, 3, spectral_norm=False, tol=1e-6, max_steps=2000)
    model.solver = teq.Anderson(tol=1e-6, max_steps=2000)
    with torch.no_grad():
        model.recurrent.raw.copy_(1.5 * torch.eye(6))  # every unit has two stable states
        model.input.bias.zero_()
    x, y = 0.02 * torch.randn(16, 2), torch.randint(0, 3, (16,))
    certificate = certify(model, x, y)
    assert certificate.ok, certificate.verdict
    assert certificate.min_cosine > 0.999


def test_zero_against_zero_is_agreement() -> None:
    model, x, y = model_and_batch()
    with torch.no_grad():
        model.readout.weight.zero_()  # nothing depends on the state
    certificate = certify(model, x, y)
    assert certificate.ok, certificate.verdict
    assert certificate.min_cosine == 1.0


def test_a_loss_that_is_not_a_number_says_so() -> None:
    model, x, y = model_and_batch()
    with pytest.raises(teq.InvalidInputError, match="The loss is nan"):
        certify(model, x, y, loss=lambda output, target: output.sum() * float("nan"))


def test_class_weights_of_the_models_precision() -> None:
    model, x, y = model_and_batch()
    weight = torch.rand(int(y.max()) + 1) + 0.5
    weight = torch.cat([weight, torch.ones(model.out_features - len(weight))])
    loss = torch.nn.CrossEntropyLoss(weight=weight)
    assert certify(model, x, y, loss=loss).ok


def test_only_the_readout_is_trained() -> None:
    model, x, y = model_and_batch()
    for name, p in model.named_parameters():
        p.requires_grad_(name.startswith("readout"))
    certificate = certify(model, x, y)
    assert certificate.ok, certificate.verdict
    assert [t.name for t in certificate.tensors] == ["input"]


def test_what_belongs_to_the_readout_is_asked_of_the_model() -> None:
    class TwoReadouts(teq.LoopedMLP):
        def __init__(self, *args: int) -> None:
            super().__init__(*args)
            self.last = torch.nn.Linear(self.out_features, self.out_features)

        def readout_from(self, state: State) -> torch.Tensor:
            return self.last(super().readout_from(state))

    torch.manual_seed(0)
    model = TwoReadouts(5, 8, 3)
    x, y = torch.randn(6, 5), torch.randint(0, 3, (6,))
    named = {t.name for t in certify(model, x, y).tensors}
    assert named == {"input", "input.weight", "input.bias", "recurrent.raw"}


def test_advice_never_makes_it_worse() -> None:
    """Six layers in float32 by states that are subtracted: the cure is precision, not β."""
    torch.manual_seed(0)
    model = teq.HopfieldMLP(
        [12] + [24] * 6 + [4], gradient=teq.ContinualEP(beta=1e-4, rate=0.0),
        on_failure="ignore", tol=1e-10, max_steps=500,
    )  # fmt: skip
    x, y = torch.randn(16, 12), torch.randint(0, 4, (16,))
    refused = certify(model, x, y)
    assert Reason.PRECISION in refused.reasons
    better = certify(model.double(), x.double(), y)
    assert Reason.PRECISION not in better.reasons
    assert better.min_cosine > refused.min_cosine


def test_asymmetric_jacobian() -> None:
    certificate = check(symmetric=False, gradient=teq.VectorFieldEP(correction=False))
    assert Reason.ASYMMETRIC in certificate.reasons
    assert certificate.asymmetry > 0.1
    assert check(symmetric=False).ok


def test_not_contracting() -> None:
    model, x, y = model_and_batch(spectral_norm=False, on_failure="ignore", max_steps=300)
    with torch.no_grad():
        model.recurrent.raw.mul_(2)
    certificate = certify(model, 0.1 * x, y)
    assert certificate.contraction > 1
    assert Reason.NOT_CONTRACTING in certificate.reasons


def test_the_oracle_is_of_the_same_matrix_where_a_backward_pass_moves_it() -> None:
    """A tight ball's estimate gets better with every backward pass, and the matrix with it: the
    exact gradient must be taken at the matrix that EP's was."""
    torch.manual_seed(0)
    options = {"gradient": teq.CenteredEP(1e-3), "tol": 1e-6, "max_steps": 500}
    model = teq.LoopedMLP(10, 96, 4, bound="tight", radius=0.95, **options)  # type: ignore[arg-type]
    frame = torch.linalg.qr(torch.randn(96, 96)).Q
    with torch.no_grad():  # several directions nearly as long as the longest: slow to tell apart
        model.recurrent.raw.copy_(frame @ torch.diag(torch.linspace(0.0, 3.0, 96)) @ frame.T)
        for module in model.modules():
            if isinstance(module, TightBall):
                module.steps.fill_(1)  # not its first estimate, which takes longer and is better
    x, y = torch.randn(16, 10), torch.randint(0, 4, (16,))
    certificate = certify(model, x, y)
    before = model.recurrent.weight.detach().clone()
    torch.nn.functional.cross_entropy(model(x), y).backward()
    moved = (model.recurrent.weight.detach() - before).norm() / before.norm()
    assert moved > 1e-3
    # What is left is the bias of β and the tolerance, both far below what the matrix moves by.
    assert certificate.ok, certificate.verdict
    assert all(abs(t.norm_ratio - 1) < 5e-3 for t in certificate.tensors), certificate.tensors


def test_an_adjoint_that_iteration_does_not_find_is_found_by_linear_algebra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in stacks of sixty-four layers, where Anderson's thousand steps do not reach it."""
    model, x, y = model_and_batch()
    right = certify(model, x, y)
    monkeypatch.setattr(implicit, "Anderson", lambda *_, **__: FixedPoint(tol=1e-12, max_steps=2))
    again = certify(model, x, y)
    assert again.ok, again.verdict
    for one, two in zip(right.tensors, again.tensors, strict=True):
        assert abs(one.cosine - two.cosine) < 1e-10
        assert abs(one.norm_ratio - two.norm_ratio) < 1e-9
    monkeypatch.setattr(certifying, "fits", lambda state: False)
    assert certify(model, x, y).reasons == (Reason.ORACLE,)


def test_a_chord_arrives_where_iteration_does_not() -> None:
    torch.manual_seed(0)
    weight = 0.999 * torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64)).Q
    constant = torch.randn(3, 6, dtype=torch.float64)
    state = torch.zeros(3, 6, dtype=torch.float64, requires_grad=True)
    image = state @ weight.mT
    parts = tuple(t.detach() for t in constant.split((2, 4), 1))
    adjoint = implicit.Adjoint((image,), (state,), (constant,))
    assert not solve(adjoint, (constant,), FixedPoint(tol=1e-12, max_steps=100)).converged
    found = solve(adjoint, (constant,), Chord(tol=1e-12, max_steps=5))
    wanted = torch.linalg.solve(torch.eye(6, dtype=torch.float64) - weight.mT, constant.mT).mT
    assert found.converged
    torch.testing.assert_close(found.state[0], wanted, rtol=1e-10, atol=1e-10)
    assert fits(parts)
    assert not fits((torch.zeros(5, 2048),))
    assert not fits((torch.zeros(5, 4, dtype=torch.complex128),))


def orthogonal_stack(seed: int) -> tuple[teq.HopfieldMLP, torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    model = teq.HopfieldMLP([12] + [24] * 8 + [4])
    return model, torch.randn(16, 12), torch.randint(0, 4, (16,))


@pytest.mark.parametrize("seed", range(3))
def test_a_kink_of_the_norm_is_no_fault_of_the_phases(seed: int) -> None:
    """All singular values of an orthogonal coupling are alike, and rounding decides which of the
    norm's subgradients a ball takes: both gradients have to go through the same one."""
    model, x, y = orthogonal_stack(seed)
    for name, raw in model.named_parameters():
        if name.endswith("raw"):
            values = torch.linalg.svdvals(raw.detach())
            assert float(values.min()) > (1 - 1e-5) * float(values.max())
    certificate = certify(model, x, y)
    # β and the tolerance leave 1e-4; through a ball of its own the oracle was off by 0.02 to 0.07.
    assert certificate.min_cosine > 0.999, certificate.tensors
    assert certificate.ok, certificate.verdict


@dataclass(frozen=True)
class Askew(GradientEstimator):
    """Half of what a neuron of the fourth layer should learn goes to the next one."""

    def backward(self, problem: Problem, free: State, cotangent: State) -> Gradients:
        found = list(teq.CenteredEP().backward(problem, free, cotangent))
        weight = found[7]  # after the input's and three weights and biases
        assert weight is not None
        found[7] = 0.5 * (weight + weight.roll(1, 0))
        return tuple(found)


def test_a_wrong_gradient_of_one_coupling_is_refused_at_the_kink_too() -> None:
    model, x, y = orthogonal_stack(0)
    model.gradient = Askew()
    certificate = certify(model, x, y)
    assert not certificate.ok
    assert [t.name for t in certificate.tensors if not t.ok] == ["layers.3.raw"]


class Fronted(teq.LoopedMLP):
    """Does something to the batch before it settles, and to what is read out."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = self.equilibrium(torch.sin(2 * x.flip(1)) + 0.5).state
        return 3 * self.readout_from(state) + x[:, :4]


def test_a_forward_of_the_models_own_is_certified_as_it_is() -> None:
    torch.manual_seed(0)
    model = Fronted(10, 24, 4, radius=0.95, tol=1e-5, max_steps=500)
    with torch.no_grad():
        model.recurrent.raw.mul_(30)
    x, y = torch.randn(16, 10), torch.randint(0, 4, (16,))
    certificate = certify(model, x, y)
    assert certificate.ok, certificate.verdict
    assert {t.name: t.cosine > 0.9999 for t in certificate.tensors}["input"]
    # The input's gradient against a difference of losses, which knows nothing of certificates.
    loss = torch.nn.functional.cross_entropy
    given = x.clone().requires_grad_()
    loss(model(given), y).backward()
    assert given.grad is not None
    exact = copy.deepcopy(model).double()
    exact.tol, step, way = 1e-12, 1e-5, torch.randn(16, 10).double()
    with torch.no_grad():
        up, down = (loss(exact(x.double() + k * step * way), y) for k in (1, -1))
    slope = float(up - down) / (2 * step)
    assert float((given.grad * way).sum()) == pytest.approx(slope, rel=1e-3)
    # And the contraction is that where the network settles.
    state = exact.equilibrium((torch.sin(2 * x.flip(1)) + 0.5).double()).state[0].detach()
    jacobians = (1 - state**2)[:, :, None] * exact.recurrent.weight.detach()
    norm = float(torch.linalg.matrix_norm(jacobians, 2).max())
    assert certificate.contraction == pytest.approx(norm, rel=1e-3)
