"""How good is this gradient? A certificate measures it against the exact one, and says why not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.energies import System, sample_norm
from toreqprop.errors import TorEqPropError, UnsupportedModelError
from toreqprop.gradients import ESTIMATORS, GradientEstimator, ImplicitGradient, UnrolledGradient
from toreqprop.gradients.vector_field import jacobian_products
from toreqprop.models import EquilibriumModel
from toreqprop.solution import Solution, State
from toreqprop.solvers import Anderson

Loss = Callable[[Tensor, Tensor], Tensor]

MIN_COSINE = 0.99
MAX_NORM_ERROR = 0.05
PROBES = 8


class Reason(Enum):
    """Why a certificate was refused; the value is the sentence a user reads."""

    WRONG_SIGN = "the gradient points uphill: the sign of the nudge or of the contrast is wrong"
    NO_NUDGE = (
        "no nudged equilibrium was computed, or it equals the free one: "
        "without the nudged phase there is nothing to learn from"
    )
    UNROLLED = (
        "the gradient was taken by backpropagation through the relaxation, not from equilibria: "
        "use gradient=CenteredEP()"
    )
    NOT_CONTRACTING = (
        "the relaxation does not contract at the equilibrium: keep spectral_norm=True or lower "
        "the learning rate"
    )
    RESIDUAL = "a relaxation stopped too early (residual too large): lower tol or raise max_steps"
    ASYMMETRIC = (
        "the Jacobian is not symmetric and the estimator assumes it is: use "
        "gradient=VectorFieldEP()"
    )
    PRECISION = (
        "the nudge is below float precision (the phases differ by rounding): raise beta or use "
        "model.double()"
    )
    BETA = "beta is too large (the bias dominates; a weaker nudge is closer): lower beta"
    UNEXPLAINED = (
        "the gradient is off and no known cause was found: compare with gradient=ImplicitGradient()"
    )


@dataclass(frozen=True)
class TensorCertificate:
    """One parameter tensor: signed cosine and norm ratio against the exact gradient."""

    name: str
    cosine: float
    norm_ratio: float
    ok: bool


@dataclass(frozen=True)
class PhaseCertificate:
    """One relaxation: its evaluations, worst relative residual, and how far the state moved.

    ``displacement`` is the largest relative distance in the batch to what the phase is contrasted
    with: the first nudged equilibrium to the free one, later ones to the first.
    """

    phase: str
    steps: int
    residual: float
    converged: bool
    displacement: float


@dataclass(frozen=True)
class Certificate:
    """What `certify` measured, and its verdict.

    ``contraction`` is the norm of the map's Jacobian at the equilibria (largest over the batch),
    ``lipschitz`` the model's global constant where known, ``asymmetry`` is ``‖U − Uᵀ‖/‖U‖`` of
    the preactivation's Jacobian.
    """

    estimator: str
    ok: bool
    reasons: tuple[Reason, ...]
    tensors: tuple[TensorCertificate, ...]
    phases: tuple[PhaseCertificate, ...]
    asymmetry: float
    contraction: float
    lipschitz: float | None

    @property
    def min_cosine(self) -> float:
        """The smallest cosine over the tensors that EP trains (a readout is exact anyway)."""
        return min(t.cosine for t in self.tensors)

    @property
    def verdict(self) -> str:
        """One sentence."""
        if self.ok:
            return (
                f"PASS: {self.estimator} agrees with the exact gradient "
                f"(smallest cosine {self.min_cosine:.6f})."
            )
        return f"FAIL: {'; '.join(r.value for r in self.reasons)}."

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        plain = asdict(self)
        plain["reasons"] = [r.name for r in self.reasons]
        return {**plain, "verdict": self.verdict, "min_cosine": self.min_cosine}

    def __str__(self) -> str:
        return self.verdict


def certify(
    model: EquilibriumModel,
    x: Tensor,
    y: Tensor,
    *,
    loss: Loss = F.cross_entropy,
    min_cosine: float = MIN_COSINE,
    max_norm_error: float = MAX_NORM_ERROR,
) -> Certificate:
    """Measure the model's gradient on one batch against the implicit oracle.

    The oracle runs on a float64 copy with the equilibrium solved to 1e-11, so it owes nothing to
    the model's solver, tolerance or precision. Neither parameters nor ``p.grad`` change.
    ``min_cosine`` and ``max_norm_error`` bound what passes, for each tensor on its own.
    """
    found, phases, graph = _estimate(model, model.gradient, x, y, loss)
    oracle = copy.deepcopy(model).double()
    oracle.tol, oracle.max_steps, oracle.solver = 1e-11, 10_000, Anderson()
    oracle.on_failure = "ignore"
    exact, _, _ = _estimate(oracle, ImplicitGradient(), _double(x), y, loss)
    tensors = tuple(
        _compare(name, found[name], exact[name], min_cosine, max_norm_error)
        for name in found
        if _is_trained_by_the_estimator(model, name)
    )
    asymmetry, contraction = _jacobian_figures(oracle, _double(x))
    try:
        lipschitz: float | None = model.lipschitz()
    except UnsupportedModelError:
        lipschitz = None
    reasons = _structural_faults(model, tensors, phases, graph)
    if not reasons and not all(t.ok for t in tensors):
        reasons = _numerical_faults(
            model, phases, asymmetry, contraction, (x, y, loss), found, exact
        )
    return Certificate(
        repr(model.gradient),
        not reasons,
        reasons,
        tensors,
        tuple(phases),
        asymmetry,
        contraction,
        lipschitz,
    )


def _estimate(
    model: EquilibriumModel, gradient: GradientEstimator, x: Tensor, y: Tensor, loss: Loss
) -> tuple[dict[str, Tensor], list[PhaseCertificate], set[str]]:
    """Gradients by parameter, the phases that ran, and the names of the graph's nodes."""
    kept, model.gradient = model.gradient, gradient
    phases: list[PhaseCertificate] = []
    contrast: list[State] = []

    def record(phase: str, solution: Solution) -> None:
        moved = 0.0
        if phase == "nudged":
            other = contrast[-1]
            gap = sample_norm(tuple(a - b for a, b in zip(solution.state, other, strict=True)))
            moved = float((gap / sample_norm(other).clamp_min(1e-30)).max())
        if len(contrast) < 2:
            contrast.append(solution.state)
        phases.append(
            PhaseCertificate(
                phase, solution.steps, solution.worst_residual, solution.converged, moved
            )
        )

    key = model.register_relaxation_hook(record)
    try:
        named = {n: p for n, p in model.named_parameters() if p.requires_grad}
        with torch.enable_grad():
            value = loss(model(x), y)
            graph = _graph_nodes(value)
            grads = torch.autograd.grad(
                value, list(named.values()), allow_unused=True, materialize_grads=True
            )
    finally:
        model.remove_relaxation_hook(key)
        model.gradient = kept
    return dict(zip(named, grads, strict=True)), phases, graph


def _double(x: Tensor) -> Tensor:
    """In float64, but for tokens."""
    return x.double() if x.is_floating_point() else x


def _graph_nodes(value: Tensor) -> set[str]:
    names, stack, seen = set(), [value.grad_fn], set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        names.add(node.name())
        stack += [parent for parent, _ in node.next_functions]
    return names


def _is_trained_by_the_estimator(model: EquilibriumModel, name: str) -> bool:
    """Readout parameters get their gradient from autograd alone and would flatter the result."""
    return not name.startswith("readout")


def _compare(
    name: str, found: Tensor, exact: Tensor, min_cosine: float, max_norm_error: float
) -> TensorCertificate:
    a, b = found.double().flatten(), exact.double().flatten()
    size = float(b.norm())
    ratio = float(a.norm()) / size if size > 0 else float(a.norm() == 0)
    cosine = float(a @ b) / (float(a.norm()) * size) if float(a.norm()) * size > 0 else 0.0
    ok = cosine >= min_cosine and abs(ratio - 1) <= max_norm_error
    return TensorCertificate(name, cosine, ratio, ok)


def _jacobian_figures(model: EquilibriumModel, x: Tensor) -> tuple[float, float]:
    """Asymmetry of U = ∂u/∂s by random probes, and ‖∂f/∂s‖ by power iteration on JᵀJ."""
    with torch.no_grad():
        system = System.bind(model.field, model.field_input(x), model.system_parameters())
        state = model.equilibrium(x).state
    forward, transposed = jacobian_products(system, state)
    generator = torch.Generator().manual_seed(0)
    skew = size = 0.0
    for _ in range(PROBES):
        v = tuple(torch.randn(s.shape, dtype=s.dtype, generator=generator) for s in state)
        a, b = forward(v), transposed(v)
        skew += sum(float((p - q).square().sum()) for p, q in zip(a, b, strict=True))
        size += sum(float(p.square().sum()) for p in a)
    asymmetry = (skew / size) ** 0.5 if size > 0 else 0.0

    leaves = tuple(s.detach().requires_grad_() for s in state)
    with torch.enable_grad():
        dummy = system.field.preactivation(leaves, system.drive, system.params)
        inputs = tuple(u.detach().requires_grad_() for u in dummy)
        slopes = torch.autograd.grad(
            [s.sum() for s in system.field.activate(inputs)], inputs, materialize_grads=True
        )
    v = tuple(torch.randn(s.shape, dtype=s.dtype, generator=generator) for s in state)
    norm = torch.zeros(x.shape[0], dtype=state[0].dtype)
    for _ in range(50):
        v = tuple(t / sample_norm(v).clamp_min(1e-300).reshape(-1, *[1] * (t.dim() - 1)) for t in v)
        w = tuple(d * u for d, u in zip(slopes, forward(v), strict=True))
        norm = sample_norm(w)
        v = transposed(tuple(d * u for d, u in zip(slopes, w, strict=True)))
    return asymmetry, float(norm.max())


def _structural_faults(
    model: EquilibriumModel,
    tensors: tuple[TensorCertificate, ...],
    phases: list[PhaseCertificate],
    graph: set[str],
) -> tuple[Reason, ...]:
    """Faults that no choice of β or tolerance explains; they fail whatever the cosine says."""
    if isinstance(model.gradient, UnrolledGradient) or "_EquilibriumBackward" not in graph:
        return (Reason.UNROLLED,)
    kinds = {p.phase for p in phases}
    if not kinds & {"nudged", "adjoint"} or all(t.norm_ratio < 1e-6 for t in tensors):
        return (Reason.NO_NUDGE,)
    return ()


def _numerical_faults(
    model: EquilibriumModel,
    phases: list[PhaseCertificate],
    asymmetry: float,
    contraction: float,
    batch: tuple[Tensor, Tensor, Loss],
    found: dict[str, Tensor],
    exact: dict[str, Tensor],
) -> tuple[Reason, ...]:
    """What explains a gradient that is off, most likely first; every cause that applies."""
    reasons = []
    if contraction >= 1:
        reasons.append(Reason.NOT_CONTRACTING)
    if asymmetry > 1e-3 and not getattr(model.gradient, "correction", False):
        reasons.append(Reason.ASYMMETRIC)
    eps = torch.finfo(next(iter(found.values())).dtype).eps
    moved = [p.displacement for p in phases if p.phase == "nudged"]
    # Rounding of a state is about eps of its norm, so this is the relative error it leaves.
    if moved and eps > 1e-2 * moved[-1]:
        reasons.append(Reason.PRECISION)
    names = [n for n in found if _is_trained_by_the_estimator(model, n)]

    def error(grads: dict[str, Tensor] | None) -> float:
        if grads is None:
            return float("inf")
        return sum(float((grads[n].double() - exact[n]).square().sum()) for n in names) ** 0.5

    longer = _retry(model, model.gradient, model.tol * 1e-3, batch)
    cleanest = _retry(model, model.gradient.softer(16), min(model.tol, 1e-9), batch)
    if any(not p.converged for p in phases) or error(longer) < 0.5 * error(found):
        reasons.append(Reason.RESIDUAL)
    if error(cleanest) < 0.5 * min(error(longer), error(found)):
        reasons.append(Reason.BETA)
    if cleanest is not None and any(float((cleanest[n] * exact[n]).sum()) < 0 for n in names):
        reasons.append(Reason.WRONG_SIGN)
    return tuple(reasons) or (Reason.UNEXPLAINED,)


def _retry(
    model: EquilibriumModel,
    gradient: GradientEstimator,
    tol: float,
    batch: tuple[Tensor, Tensor, Loss],
) -> dict[str, Tensor] | None:
    """The gradient again with this estimator and tolerance, on a float64 copy so that rounding
    does not interfere; None where the model cannot do it."""
    x, y, loss = batch
    trial = copy.deepcopy(model).double()
    trial.on_failure = "ignore"
    trial.tol, trial.max_steps = tol, max(10 * model.max_steps, 1000)
    try:
        return _estimate(trial, gradient, _double(x), y, loss)[0]
    except TorEqPropError:
        return None


def estimator_by_name(name: str) -> type[GradientEstimator]:
    """The estimator registered under ``name``, or an error that lists the names."""
    if name not in ESTIMATORS:
        raise UnsupportedModelError(
            f"There is no estimator {name!r}: choose one of {', '.join(ESTIMATORS)}."
        )
    return ESTIMATORS[name]
