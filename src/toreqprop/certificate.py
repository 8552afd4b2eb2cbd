"""How good is this gradient? A certificate measures it against the exact one, and says why not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop import checks
from toreqprop.energies import System
from toreqprop.energies.system import sample_norm
from toreqprop.errors import InvalidInputError, TorEqPropError, UnsupportedModelError
from toreqprop.gradients import ESTIMATORS, GradientEstimator, ImplicitGradient, UnrolledGradient
from toreqprop.gradients.vector_field import jacobian_products
from toreqprop.models import EquilibriumModel
from toreqprop.models.base import unchanged_buffers
from toreqprop.models.constrained import proofs
from toreqprop.private_generator import noise_from
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
        "the relaxation does not contract at the equilibrium: keep spectral_norm=True, weaken the "
        "feedback or lower the learning rate"
    )
    RESIDUAL = "a relaxation stopped too early (residual too large): lower tol or raise max_steps"
    ASYMMETRIC = (
        "the Jacobian is not symmetric and the estimator assumes it is: use "
        "gradient=VectorFieldEP()"
    )
    PRECISION = (
        "rounding spoils the gradient (in double precision it is closer): use model.double()"
    )
    BETA = "beta is too large (the bias dominates; a weaker nudge is closer): lower beta"
    NORM = (
        "a weight's norm is above the radius its estimate was to keep it below: train on, the "
        'margin rises by itself, or use bound="proven"'
    )
    ORACLE = (
        "the exact gradient itself could not be computed to 1e-9, so nothing is certified: try a "
        "smaller batch or a model that contracts"
    )
    UNEXPLAINED = (
        "the gradient is off and no known cause was found: compare with gradient=ImplicitGradient()"
    )


@dataclass(frozen=True)
class TensorCertificate:
    """One parameter tensor, or "input": signed cosine and norm ratio against the exact gradient."""

    name: str
    cosine: float
    norm_ratio: float
    ok: bool


@dataclass(frozen=True)
class PhaseCertificate:
    """One relaxation: its evaluations, worst relative residual, and how far the nudge moved it.

    ``displacement`` is the largest relative distance in the batch of the two states that are
    contrasted, ``status`` how it ended, ``layer`` where, if not well.
    """

    phase: str
    steps: int
    residual: float
    converged: bool
    displacement: float
    status: str = "CONVERGED"
    layer: int | None = None


@dataclass(frozen=True)
class NormCertificate:
    """One weight whose norm is kept by an estimate (`TightBall`): ``norm ≤ radius``, proven or not.

    Proven by a factorisation in double precision, or for convolutions by Golub-Kahan from a random
    start, which is wrong once in 10⁹.
    """

    name: str
    radius: float
    proven: bool


@dataclass(frozen=True)
class Certificate:
    """What `certify` measured, and its verdict.

    ``contraction`` is the norm of the map's Jacobian at the equilibria (largest over the batch, in
    the norm of ``lipschitz``), ``lipschitz`` the model's global constant where known, ``asymmetry``
    is ``‖U − Uᵀ‖/‖U‖`` of the preactivation's Jacobian.

    ``backprop_cosine`` is another thing: the smallest cosine over the tensors with plain
    backpropagation through the feed-forward network of the same parameters, None for models without
    one. It is near one where feedback is weak, and no part of the verdict.

    ``norms`` are those that training only estimates: here they are proven.
    """

    estimator: str
    ok: bool
    reasons: tuple[Reason, ...]
    tensors: tuple[TensorCertificate, ...]
    phases: tuple[PhaseCertificate, ...]
    asymmetry: float
    contraction: float
    lipschitz: float | None
    backprop_cosine: float | None = None
    norms: tuple[NormCertificate, ...] = ()

    @property
    def min_cosine(self) -> float:
        """The smallest cosine over the tensors that EP trains (a readout is exact anyway)."""
        return min((t.cosine for t in self.tensors), default=1.0)

    @property
    def verdict(self) -> str:
        """One sentence."""
        beside = ""
        if self.backprop_cosine is not None:
            beside = f"; cosine with plain backpropagation {self.backprop_cosine:.6f}"
        if not self.ok:
            return f"FAIL: {'; '.join(r.value for r in self.reasons)}{beside}."
        return (
            f"PASS: {self.estimator} agrees with the exact gradient "
            f"(smallest cosine {self.min_cosine:.6f}{beside})."
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        plain = asdict(self)
        plain["reasons"] = [r.name for r in self.reasons]
        return {**plain, "verdict": self.verdict, "min_cosine": self.min_cosine}

    def __str__(self) -> str:
        return self.verdict


CERTIFIERS: dict[type[EquilibriumModel], Callable[..., Certificate | None]] = {}
"""Models whose gradients are certified in a way of their own; None leaves it to `certify`."""


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

    The oracle is a float64 copy that goes on from the model's own equilibrium to a residual of
    1e-11, so it owes nothing to the model's tolerance or precision and cannot end up at another
    equilibrium. Neither parameters nor ``p.grad`` change. ``min_cosine`` and ``max_norm_error``
    bound what passes, for each tensor and the input on its own.

    Raises:
        InvalidInputError: the loss is not finite.
    """
    own = CERTIFIERS.get(type(model))
    with nullcontext() if own is None else noise_from(torch.Generator().manual_seed(0)):
        check_problem(model, x, y, loss)
    checks.number("min_cosine", min_cosine)
    checks.number("max_norm_error", max_norm_error, 0)
    special = None if own is None else own(model, x, y, loss, min_cosine, max_norm_error)
    if special is not None:
        return special
    return _certificate(model, x, y, loss, min_cosine, max_norm_error)


def _certificate(
    model: EquilibriumModel,
    x: Tensor,
    y: Tensor,
    loss: Loss,
    min_cosine: float,
    max_norm_error: float,
) -> Certificate:
    found = _estimate(model, model.gradient, x, y, loss)
    oracle = _copy(model, _ORACLE_TOL, 10_000)
    exact = _estimate(oracle, ImplicitGradient(), _double(x), y, loss, found, model)
    if not exact.settled:
        oracle.solver = Anderson(tol=_ORACLE_TOL, max_steps=10_000)
        exact = _estimate(oracle, ImplicitGradient(), _double(x), y, loss, found, model)
    names = [n for n in found.gradients if n == INPUT or n in model.estimated_parameters()]
    tensors = tuple(
        _compare(n, found.gradients[n], exact.gradients[n], min_cosine, max_norm_error)
        for n in names
    )
    asymmetry, contraction = _jacobian_figures(oracle, _double(x), exact.state)
    try:
        lipschitz: float | None = model.lipschitz()
    except UnsupportedModelError:
        lipschitz = None
    reasons = _structural_faults(model, tensors, found)
    if not exact.settled:
        reasons = (Reason.ORACLE,)
    norms = tuple(NormCertificate(*found) for found in proofs(model))
    if not all(norm.proven for norm in norms):
        reasons = (*reasons, Reason.NORM)
    if not reasons and not all(t.ok for t in tensors):
        bad = [t.name for t in tensors if not t.ok]
        reasons = _numerical_faults(model, asymmetry, contraction, (x, y, loss), found, exact, bad)
    return Certificate(
        repr(model.gradient),
        not reasons,
        reasons,
        tensors,
        tuple(found.phases),
        asymmetry,
        contraction,
        lipschitz,
        _backprop_cosine(oracle, model, _double(x), y, loss, found),
        norms,
    )


def _backprop_cosine(
    oracle: EquilibriumModel,
    model: EquilibriumModel,
    x: Tensor,
    y: Tensor,
    loss: Loss,
    found: _Estimate,
) -> float | None:
    """The smallest cosine of the model's gradient with that of its feed-forward twin."""
    estimated = set(model.estimated_parameters())
    named = {n: p for n, p in oracle.named_parameters() if n in estimated}
    dtype = next(model.parameters()).dtype
    with torch.enable_grad():
        output = oracle.feedforward(x)
        if output is None or not named:
            return None
        value = loss(output.to(dtype), y)
        grads = torch.autograd.grad(
            value, list(named.values()), allow_unused=True, materialize_grads=True
        )
    both = zip(named, grads, strict=True)
    return min(_compare(n, found.gradients[n], g, 0, 0).cosine for n, g in both)


def check_problem(model: EquilibriumModel, x: Tensor, y: Tensor, loss: Loss) -> None:
    """Refuse what cannot be certified, with what to give instead."""
    checks.instance("model", model, EquilibriumModel, "only these have a relaxation to certify")
    model.check_input(x)
    checks.pairs(x, y)
    checks.function("loss", loss)
    with torch.no_grad():
        output = model(x)
    try:
        value = loss(output, y)
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise InvalidInputError(
            f"The loss cannot compare outputs {tuple(output.shape)} with y {tuple(y.shape)} of "
            f"{y.dtype}: {reason}."
        ) from None
    if not isinstance(value, Tensor) or value.numel() != 1:
        raise InvalidInputError("The loss must return one number: average over the samples.")


INPUT = "input"
_NUDGED = {"_EquilibriumBackward", "_TransformedEquilibriumBackward"}
_ORACLE_TOL = 1e-11


@dataclass
class _Estimate:
    """One gradient: by parameter and for the input, how it was found, and where."""

    gradients: dict[str, Tensor]
    phases: list[PhaseCertificate]
    graph: set[str]
    state: State

    @property
    def settled(self) -> bool:
        return all(p.converged or p.residual < 1e-9 for p in self.phases)


def _estimate(
    model: EquilibriumModel,
    gradient: GradientEstimator,
    x: Tensor,
    y: Tensor,
    loss: Loss,
    at: _Estimate | None = None,
    like: EquilibriumModel | None = None,
) -> _Estimate:
    """The gradient of ``loss`` by ``gradient``, from the equilibrium of another estimate if given.

    The loss sees outputs in the precision of the model ``like``: its own tensors, class weights for
    instance, are of that precision too.
    """
    kept = model.gradient, model.on_failure, model.relaxations, model.failures.copy()
    model.gradient, model.on_failure = gradient, "ignore"  # what fails is in the certificate
    phases: list[PhaseCertificate] = []
    states: list[State] = []

    def record(phase: str, solution: Solution) -> None:
        moved = 0.0
        if phase == "free":
            states.append(tuple(s.detach() for s in solution.state))
        if solution.shift:
            apart, size = sample_norm(solution.shift), sample_norm(solution.state)
            moved = float((2 * apart / size.clamp_min(1e-30)).max())
        phases.append(
            PhaseCertificate(
                phase, solution.steps, solution.worst_residual, solution.converged, moved,
                solution.status.name, solution.layer,
            )
        )  # fmt: skip

    key = model.register_relaxation_hook(record)
    named: dict[str, Tensor] = {n: p for n, p in model.named_parameters() if p.requires_grad}
    dtype = next((model if like is None else like).parameters()).dtype
    start = None if at is None else tuple(s.to(_float64(s)) for s in at.state)
    try:
        # A backward pass moves buffers; the next estimate must be of the same network.
        with unchanged_buffers(model), torch.enable_grad():
            if x.is_floating_point():
                x = x.detach().clone().requires_grad_()
                named[INPUT] = x
            if start is None:
                output = model(x)
            else:
                output = model.readout_from(model.equilibrium(x, start=start).state)
            value = loss(output.to(dtype) if output.is_floating_point() else output, y)
            if not bool(torch.isfinite(value)):
                raise InvalidInputError(
                    f"The loss is {value.item()}, so there is no gradient to certify: check "
                    "inputs, targets and weights for NaN and infinite values."
                )
            graph = _graph_nodes(value)
            grads = torch.autograd.grad(
                value, list(named.values()), allow_unused=True, materialize_grads=True
            )
    finally:
        model.remove_relaxation_hook(key)
        model.gradient, model.on_failure, model.relaxations, model.failures = kept
    if not states:  # an unrolled model has no free phase to report
        with torch.no_grad():
            states.append(model.equilibrium(x).state)
    return _Estimate(dict(zip(named, grads, strict=True)), phases, graph, states[0])


def _float64(tensor: Tensor) -> torch.dtype:
    return torch.complex128 if tensor.is_complex() else torch.float64


def _copy(model: EquilibriumModel, tol: float, max_steps: int) -> EquilibriumModel:
    """In double precision, silent, with another tolerance."""
    copied = copy.deepcopy(model).double()
    copied.on_failure = "ignore"
    copied._hooks = {}
    copied.solver = copied.solver.limited(tol, max_steps)
    return copied


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


def _compare(
    name: str, found: Tensor, exact: Tensor, min_cosine: float, max_norm_error: float
) -> TensorCertificate:
    a, b = found.double().flatten(), exact.double().flatten()
    # Divided by their largest entries first: squares of tiny gradients would underflow.
    peak = max(float(a.abs().max()), float(b.abs().max()))
    if peak == 0:
        return TensorCertificate(name, 1.0, 1.0, True)  # nothing to learn, and nothing learned
    a, b = a / peak, b / peak
    sizes = float(a.norm()), float(b.norm())
    ratio = sizes[0] / sizes[1] if sizes[1] > 0 else float("inf")
    cosine = float(a @ b) / (sizes[0] * sizes[1]) if min(sizes) > 0 else 0.0
    ok = cosine >= min_cosine and abs(ratio - 1) <= max_norm_error
    return TensorCertificate(name, cosine, ratio, ok)


def _jacobian_figures(model: EquilibriumModel, x: Tensor, state: State) -> tuple[float, float]:
    """Asymmetry of U = ∂u/∂s by random probes, and ‖∂f/∂s‖ by power iteration on JᵀJ.

    The norm is the one the field's Lipschitz constant holds in.
    """
    with torch.no_grad():
        system = System.bind(model.field, model.field_input(x), model.system_parameters())
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
    heat = [system.field.temperature(layer) ** 0.5 for layer in range(len(state))]

    def weighted(v: State, factors: list[float]) -> State:
        return tuple(h * t for h, t in zip(factors, v, strict=True))

    cold = [1 / h for h in heat]
    v = tuple(torch.randn(s.shape, dtype=s.dtype, generator=generator) for s in state)
    norm = torch.zeros(x.shape[0], dtype=state[0].dtype)
    for _ in range(50):
        v = tuple(t / sample_norm(v).clamp_min(1e-300).reshape(-1, *[1] * (t.dim() - 1)) for t in v)
        image = forward(weighted(v, cold))
        w = weighted(tuple(d * u for d, u in zip(slopes, image, strict=True)), heat)
        norm = sample_norm(w)
        back = tuple(d * u for d, u in zip(slopes, weighted(w, heat), strict=True))
        v = weighted(transposed(back), cold)
    return asymmetry, float(norm.max())


def _structural_faults(
    model: EquilibriumModel, tensors: tuple[TensorCertificate, ...], found: _Estimate
) -> tuple[Reason, ...]:
    """Faults that no choice of β or tolerance explains; they fail whatever the cosine says."""
    if not tensors:
        return ()
    if isinstance(model.gradient, UnrolledGradient) or not found.graph & _NUDGED:
        return (Reason.UNROLLED,)
    kinds = {p.phase for p in found.phases}
    if not kinds & {"nudged", "adjoint"} or all(t.norm_ratio < 1e-6 for t in tensors):
        return (Reason.NO_NUDGE,)
    return ()


def _numerical_faults(
    model: EquilibriumModel,
    asymmetry: float,
    contraction: float,
    batch: tuple[Tensor, Tensor, Loss],
    found: _Estimate,
    exact: _Estimate,
    bad: list[str],
) -> tuple[Reason, ...]:
    """What explains a gradient that is off: every cause whose removal is seen to help."""
    reasons = []
    if contraction >= 1:
        reasons.append(Reason.NOT_CONTRACTING)
    if asymmetry > 1e-3 and not getattr(model.gradient, "correction", False):
        reasons.append(Reason.ASYMMETRIC)

    def error(trial: _Estimate | None) -> float:
        """Root mean square over the tensors that are off, each relative to itself."""
        if trial is None:
            return float("inf")
        total = 0.0
        for name in bad:
            size = float(exact.gradients[name].norm())
            apart = float((trial.gradients[name].double() - exact.gradients[name]).norm())
            total += (apart / size if size > 0 else apart) ** 2
        return (total / len(bad)) ** 0.5

    longer = max(10 * model.max_steps, 1000)
    double = _retry(model, model.gradient, model.tol, model.max_steps, batch, None)
    exacter = _retry(model, model.gradient, min(1e-3 * model.tol, 1e-9), longer, batch, found)
    softer = _retry(
        model, model.gradient.softer(16), min(1e-3 * model.tol, 1e-9), longer, batch, found
    )
    errors = [error(e) for e in (found, double, exacter, softer)]
    single = next(model.parameters()).dtype != torch.float64
    if single and errors[1] < 0.5 * errors[0]:
        reasons.append(Reason.PRECISION)
    if errors[2] < 0.5 * min(errors[:2]):
        reasons.append(Reason.RESIDUAL)
    if errors[3] < 0.5 * min(errors[:3]):
        reasons.append(Reason.BETA)
    if softer is not None and any(
        float((softer.gradients[n] * exact.gradients[n]).sum()) < 0 for n in bad
    ):
        reasons.append(Reason.WRONG_SIGN)
    if not reasons and any(p.status in ("MAX_STEPS", "DIVERGED") for p in found.phases):
        reasons.append(Reason.RESIDUAL)
    return tuple(reasons) or (Reason.UNEXPLAINED,)


def _retry(
    model: EquilibriumModel,
    gradient: GradientEstimator,
    tol: float,
    max_steps: int,
    batch: tuple[Tensor, Tensor, Loss],
    at: _Estimate | None,
) -> _Estimate | None:
    """The gradient again with this estimator and tolerance, on a float64 copy so that rounding
    does not interfere; None where the model cannot do it."""
    x, y, loss = batch
    try:
        trial = _copy(model, tol, max_steps)
        return _estimate(trial, gradient, _double(x), y, loss, at, model)
    except TorEqPropError:
        return None


def estimator_by_name(name: str) -> type[GradientEstimator]:
    """The estimator registered under ``name``, or an error that lists the names."""
    if name not in ESTIMATORS:
        raise UnsupportedModelError(
            f"There is no estimator {name!r}: choose one of {', '.join(ESTIMATORS)}."
        )
    return ESTIMATORS[name]
