"""Gradients that are wrong in one known way, for certificates to refuse."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.bench.unnudged import UnnudgedEP
from toreqprop.certificate import Certificate, Reason, certify
from toreqprop.energies import Gradients
from toreqprop.gradients import (
    CenteredEP,
    GradientEstimator,
    UnrolledGradient,
    VectorFieldEP,
)
from toreqprop.gradients.base import Problem
from toreqprop.models import EquilibriumModel, LoopedMLP
from toreqprop.solution import State
from toreqprop.verify.faults import WrongSign

ANGLE = 15.0
"""Degrees; a cosine of 0.966."""


@dataclass(frozen=True)
class Spoiled(GradientEstimator):
    """Another estimator's gradient with one tensor changed: 0 is the input, then the parameters."""

    change: Callable[[Tensor], Tensor]
    tensor: int
    right: GradientEstimator = CenteredEP()
    bias: ClassVar[str] = "one tensor is wrong"

    def backward(self, problem: Problem, free: State, cotangent: State) -> Gradients:
        found = list(self.right.backward(problem, free, cotangent))
        given = found[self.tensor]
        if given is not None:
            found[self.tensor] = self.change(given)
        return tuple(found)


def turned(gradient: Tensor) -> Tensor:
    """The same length, `ANGLE` degrees off."""
    noise = torch.randn(gradient.shape, generator=torch.Generator().manual_seed(0))
    side = noise.to(gradient)
    side = side - gradient * ((side * gradient).sum() / gradient.square().sum())
    side = side * (gradient.norm() / side.norm())
    angle = math.radians(ANGLE)
    return math.cos(angle) * gradient + math.sin(angle) * side


@dataclass(frozen=True)
class Wrong:
    """A gradient to refuse: the tensor that is off with its true cosine and norm ratio (if known),
    and a reason that has to be among those given (if any)."""

    name: str
    gradient: GradientEstimator
    tensor: str | None = None
    cosine: float = 1.0
    ratio: float = 1.0
    reason: Reason | None = None
    settings: tuple[tuple[str, Any], ...] = ()


TENSORS = ("input", "input.weight", "input.bias", "recurrent.raw")
TURN = math.cos(math.radians(ANGLE))

WRONG: tuple[Wrong, ...] = (
    *(
        Wrong(f"0.7 of {name}", Spoiled(lambda g: 0.7 * g, k), name, ratio=0.7)
        for k, name in enumerate(TENSORS)
    ),
    *(
        Wrong(f"{name} turned by {ANGLE:g} degrees", Spoiled(turned, k), name, cosine=TURN)
        for k, name in enumerate(TENSORS[:3])
    ),
    Wrong("sign of the bias", Spoiled(torch.neg, 2), "input.bias", cosine=-1.0),
    Wrong("every sign", WrongSign(CenteredEP()), reason=Reason.WRONG_SIGN),
    Wrong("no nudge", UnnudgedEP(), reason=Reason.NO_NUDGE),
    Wrong("unrolled", UnrolledGradient(30), reason=Reason.UNROLLED),
    Wrong("a nudge of 2", CenteredEP(2.0), reason=Reason.BETA),
    Wrong("a tolerance of 0.5", CenteredEP(), reason=Reason.RESIDUAL, settings=(("tol", 0.5),)),
    Wrong(
        "no correction",
        VectorFieldEP(correction=False),
        reason=Reason.ASYMMETRIC,
        settings=(("symmetric", False),),
    ),
)


@dataclass(frozen=True)
class Judged:
    """What a certificate made of a wrong gradient."""

    wrong: Wrong
    certificate: Certificate
    error: float
    """Deviation of the stated cosine and norm ratio from the known ones, largest."""

    @property
    def refused(self) -> bool:
        """Refused, for the right reason, and the tensor named where there is one."""
        found = self.certificate
        named = self.wrong.tensor is None or [t.name for t in found.tensors if not t.ok] == [
            self.wrong.tensor
        ]
        explained = self.wrong.reason is None or self.wrong.reason in found.reasons
        return not found.ok and named and explained


def judge(wrong: Wrong, x: Tensor, y: Tensor, features: int, classes: int, seed: int) -> Judged:
    """A certificate of a network with this gradient."""
    options: dict[str, Any] = {"tol": 1e-5, **dict(wrong.settings)}
    torch.manual_seed(seed)
    model: EquilibriumModel = LoopedMLP(
        features, 24, classes, radius=0.9, bound="exact", on_failure="ignore", max_steps=500,
        gradient=wrong.gradient, **options,
    )  # fmt: skip
    strengthen(model)
    found = certify(model, x, y)
    error = 0.0
    for tensor in found.tensors:
        if wrong.tensor is None:
            break
        hit = tensor.name == wrong.tensor
        cosine, ratio = (wrong.cosine, wrong.ratio) if hit else (1.0, 1.0)
        error = max(error, abs(tensor.cosine - cosine), abs(tensor.norm_ratio - ratio))
    return Judged(wrong, found, error)


def strengthen(model: EquilibriumModel) -> None:
    """Weights outside their ball, so that it is at work and recurrence matters."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("raw"):
                parameter.mul_(30)


def loose(x: Tensor, y: Tensor, features: int, classes: int, seed: int, tol: float) -> float:
    """How far a certificate's cosines are from the true ones where relaxations stop far too early:
    the exact gradient is found again, at an equilibrium to rounding, by a nudge next to nothing."""
    torch.manual_seed(seed)
    model = LoopedMLP(
        features, 24, classes, radius=0.9, bound="exact", on_failure="ignore", tol=tol
    )
    strengthen(model)
    stated = {t.name: t.cosine for t in certify(model, x, y).tensors if t.name != "input"}
    exact = copy.deepcopy(model).double()
    exact.solver, exact.gradient = exact.solver.limited(1e-12, 1000), CenteredEP(1e-5)

    def gradients(net: LoopedMLP, rows: Tensor) -> dict[str, Tensor]:
        named = {n: p for n, p in net.named_parameters() if n in stated}
        found = torch.autograd.grad(F.cross_entropy(net(rows), y), list(named.values()))
        return {n: g.double().flatten() for n, g in zip(named, found, strict=True)}

    mine, theirs = gradients(model, x), gradients(exact, x.double())
    return max(abs(float(F.cosine_similarity(mine[n], theirs[n], 0)) - stated[n]) for n in stated)


def softened(estimator: GradientEstimator) -> GradientEstimator:
    """With a bias far below what is asked; oracles stay as they are."""
    if estimator.order is None:
        return (
            replace(estimator, steps=400) if isinstance(estimator, UnrolledGradient) else estimator
        )
    return estimator.softer(30.0 if estimator.order == 1 else 3.0)
