"""Why a gradient is off: faults of structure, and numerical ones that are seen to matter."""

from __future__ import annotations

import torch
from torch import Tensor

from toreqprop.certificate.estimate import Estimate, Loss, double, estimate, in_double
from toreqprop.certificate.report import Reason, TensorCertificate
from toreqprop.errors import TorEqPropError
from toreqprop.gradients import GradientEstimator, UnrolledGradient
from toreqprop.models import EquilibriumModel

NUDGED = {"_EquilibriumBackward", "_TransformedEquilibriumBackward", "_StepBackward"}
"""Nodes of a graph whose backward pass is a nudged phase."""


def structural_faults(
    model: EquilibriumModel, tensors: tuple[TensorCertificate, ...], found: Estimate
) -> tuple[Reason, ...]:
    """Faults that no choice of β or tolerance explains; they fail whatever the cosine says."""
    if not tensors:
        return ()
    if isinstance(model.gradient, UnrolledGradient) or not found.graph & NUDGED:
        return (Reason.UNROLLED,)
    kinds = {p.phase for p in found.phases}
    if not kinds & {"nudged", "adjoint"} or all(t.norm_ratio < 1e-6 for t in tensors):
        return (Reason.NO_NUDGE,)
    return ()


def numerical_faults(
    model: EquilibriumModel,
    asymmetry: float,
    contraction: float,
    batch: tuple[Tensor, Tensor, Loss],
    found: Estimate,
    exact: Estimate,
    bad: list[str],
) -> tuple[Reason, ...]:
    """What explains a gradient that is off: every cause whose removal is seen to help."""
    reasons = []
    if contraction >= 1:
        reasons.append(Reason.NOT_CONTRACTING)
    if asymmetry > 1e-3 and not getattr(model.gradient, "correction", False):
        reasons.append(Reason.ASYMMETRIC)

    def error(trial: Estimate | None) -> float:
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
    twice = _retry(model, model.gradient, model.tol, model.max_steps, batch, None)
    exacter = _retry(model, model.gradient, min(1e-3 * model.tol, 1e-9), longer, batch, found)
    softer = _retry(
        model, model.gradient.softer(16), min(1e-3 * model.tol, 1e-9), longer, batch, found
    )
    errors = [error(e) for e in (found, twice, exacter, softer)]
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
    if not reasons and any(p.status in ("MAX_STEPS", "CYCLING", "DIVERGED") for p in found.phases):
        reasons.append(Reason.RESIDUAL)
    return tuple(reasons) or (Reason.UNEXPLAINED,)


def _retry(
    model: EquilibriumModel,
    gradient: GradientEstimator,
    tol: float,
    max_steps: int,
    batch: tuple[Tensor, Tensor, Loss],
    at: Estimate | None,
) -> Estimate | None:
    """The gradient again with this estimator and tolerance, on a float64 copy so that rounding
    does not interfere; None where the model cannot do it."""
    x, y, loss = batch
    try:
        trial = in_double(model, tol, max_steps)
        return estimate(trial, gradient, double(x), y, loss, at, model)
    except TorEqPropError:
        return None
