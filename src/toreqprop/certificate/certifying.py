"""`certify`: a model's own gradient on one batch against the exact one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop import checks
from toreqprop.certificate.chord import Chord, fits
from toreqprop.certificate.comparison import compare
from toreqprop.certificate.estimate import (
    INPUT,
    Estimate,
    Loss,
    double,
    estimate,
    gradients_by_name,
    in_double,
    weights_of,
)
from toreqprop.certificate.faults import numerical_faults, structural_faults
from toreqprop.certificate.jacobian import jacobian_figures
from toreqprop.certificate.report import Certificate, NormCertificate, Reason
from toreqprop.errors import InvalidInputError, UnsupportedModelError
from toreqprop.gradients import ImplicitGradient
from toreqprop.models import EquilibriumModel
from toreqprop.models.base import unchanged_buffers
from toreqprop.models.constrained import proofs
from toreqprop.private_generator import noise_from
from toreqprop.solution import State
from toreqprop.solvers import Anderson

MIN_COSINE = 0.99
MAX_NORM_ERROR = 0.05
ORACLE_TOL = 1e-11

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
    equilibrium. Its effective weights are the model's, and both gradients go to the raw ones
    through the model's own constraints: what is judged is how the network settles. Neither
    parameters nor ``p.grad`` change. ``min_cosine`` and ``max_norm_error`` bound what passes, for
    each tensor and the input on its own.

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
    found = estimate(model, model.gradient, x, y, loss)
    oracle = in_double(model, ORACLE_TOL, 10_000)
    exact = estimate(oracle, ImplicitGradient(), double(x), y, loss, found, model)
    if not exact.settled:
        if not all(p.settled for p in exact.phases if p.phase == "free"):
            oracle.solver = Anderson(tol=ORACLE_TOL, max_steps=10_000)
        exact = estimate(oracle, _direct(exact.state), double(x), y, loss, found, model)
    estimated = {INPUT, *model.estimated_parameters()}
    names = [n for n in found.gradients if n in estimated]
    tensors = tuple(
        compare(n, found.gradients[n], exact.gradients[n], min_cosine, max_norm_error)
        for n in names
    )
    asymmetry, contraction = jacobian_figures(oracle, exact.given, exact.state)
    try:
        lipschitz: float | None = model.lipschitz()
    except UnsupportedModelError:
        lipschitz = None
    reasons = structural_faults(model, tensors, found)
    if not exact.settled:
        reasons = (Reason.ORACLE,)
    norms = tuple(NormCertificate(*proof) for proof in proofs(model))
    if not all(norm.proven for norm in norms):
        reasons = (*reasons, Reason.NORM)
    if not reasons and not all(t.ok for t in tensors):
        bad = [t.name for t in tensors if not t.ok]
        reasons = numerical_faults(model, asymmetry, contraction, (x, y, loss), found, exact, bad)
    return Certificate(
        repr(model.gradient),
        not reasons,
        reasons,
        tensors,
        tuple(found.phases),
        asymmetry,
        contraction,
        lipschitz,
        _backprop_cosine(oracle, model, double(x), y, loss, found),
        norms,
    )


def _direct(state: State) -> ImplicitGradient:
    """The exact gradient by linear algebra where the network is small, as deep narrow stacks are:
    their equilibrium is found long before an adjoint that fades from layer to layer."""
    return ImplicitGradient(Chord(tol=1e-12, max_steps=20) if fits(state) else None)


def _backprop_cosine(
    oracle: EquilibriumModel,
    model: EquilibriumModel,
    x: Tensor,
    y: Tensor,
    loss: Loss,
    found: Estimate,
) -> float | None:
    """The smallest cosine of the model's gradient with that of its feed-forward twin; None where
    there is none, or a `forward` of the model's own that `feedforward` knows nothing of."""
    estimated = set(model.estimated_parameters())
    if not estimated or type(model).forward is not EquilibriumModel.forward:
        return None
    leaves = [(n, p) for each in (oracle, model) for n, p in each.named_parameters()]
    with torch.enable_grad(), unchanged_buffers(model), weights_of(model, oracle):
        output = oracle.feedforward(x)
        if output is None:
            return None
        value = loss(output.to(next(model.parameters()).dtype), y)
        exact = gradients_by_name(value, [leaf for leaf in leaves if leaf[0] in estimated])
    return min(compare(n, found.gradients[n], g, 0, 0).cosine for n, g in exact.items())


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
