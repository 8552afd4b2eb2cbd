"""Gradients of trained networks, taken apart: exact ones, errors, cosines, orders of a bias."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.gradients import GradientEstimator, ImplicitGradient
from toreqprop.models import EquilibriumModel
from toreqprop.models.base import unchanged_buffers

Gradients = dict[str, Tensor]
Model = TypeVar("Model", bound=EquilibriumModel)


def tight(model: Model, tol: float = 1e-12, max_steps: int = 5000) -> Model:
    """A copy in double precision whose relaxations run to rounding."""
    net = copy.deepcopy(model).double()
    net.solver, net.on_failure = net.solver.limited(tol, max_steps), "ignore"
    return net


def gradients(
    model: EquilibriumModel, x: Tensor, y: Tensor, estimator: GradientEstimator | None = None
) -> Gradients:
    """Of the mean cross-entropy, for every tensor the estimator trains."""
    kept = model.gradient
    named = dict(model.named_parameters())
    names = model.estimated_parameters()
    try:
        model.gradient = kept if estimator is None else estimator
        with unchanged_buffers(model):
            loss = F.cross_entropy(model(x), y)
            found = torch.autograd.grad(loss, [named[n] for n in names])
    finally:
        model.gradient = kept
    return {n: g.double() for n, g in zip(names, found, strict=True)}


def exact(model: EquilibriumModel, x: Tensor, y: Tensor) -> Gradients:
    """The same by the implicit function theorem."""
    return gradients(model, x, y, ImplicitGradient())


def error(found: Gradients, wanted: Gradients) -> float:
    """The largest relative distance of any tensor."""
    return max(float((found[n] - wanted[n]).norm() / wanted[n].norm()) for n in wanted)


def cosines(found: Gradients, wanted: Gradients) -> dict[str, float]:
    """Signed, by tensor."""
    return {
        n: float(F.cosine_similarity(found[n].flatten(), wanted[n].flatten(), dim=0))
        for n in wanted
    }


def least_cosine(found: Gradients, wanted: Gradients) -> float:
    """The smallest of them."""
    return min(cosines(found, wanted).values())


def order(betas: Sequence[float], errors: Sequence[float]) -> float:
    """Least-squares slope of log error on log β."""
    logs = torch.tensor([betas, errors], dtype=torch.float64).log()
    centred = logs - logs.mean(1, keepdim=True)
    return float((centred[0] * centred[1]).sum() / centred[0].square().sum())


def mean(values: Sequence[float]) -> float:
    """Their mean."""
    return sum(values) / len(values)
