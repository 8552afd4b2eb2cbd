"""EP without an energy: vector fields with asymmetric Jacobians."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch

from toreqprop.energies import (
    AsymmetryCorrection,
    Gradients,
    LinearNudge,
    Nudge,
    System,
    per_sample,
)
from toreqprop.gradients.base import (
    GradientEstimator,
    Problem,
    check_beta,
    mirrored,
    negligible,
    normalise,
)
from toreqprop.solution import State


@dataclass(frozen=True)
class VectorFieldEP(GradientEstimator):
    """``dC/dθ ≈ −⟨(s_β − s_−β)/2β, ∂u/∂θ(s*)⟩``: what changed, times what it listens to.

    With ``correction`` the nudged phases feel the extra force ``(Uᵀ − U)(s − s*)``, ``U = ∂u/∂s``,
    and the estimate is exact as β → 0 for any Jacobian; without it, only for symmetric ones.
    """

    beta: float = 0.05
    correction: bool = True
    order: ClassVar[int | None] = 2
    bias: ClassVar[str] = "O(β²)"
    paper: ClassVar[str] = "Scellier et al. 2018; correction: Scurria et al. 2026"

    def __post_init__(self) -> None:
        check_beta(self.beta)

    def backward(self, problem: Problem, free: State, cotangent: State) -> Gradients:
        direction, scale = normalise(cotangent)
        system = problem.system

        def nudge(beta: float) -> Nudge:
            linear = LinearNudge(direction, beta)
            return AsymmetryCorrection(linear, free, asymmetry) if self.correction else linear

        if self.correction:
            asymmetry = jacobian_asymmetry(system, free)
        up = problem.relax(nudge(self.beta), free, negligible(scale > 0), relative_to_first=True)
        down = problem.relax(nudge(-self.beta), mirrored(free, up.state), up.scale)
        change = tuple(
            per_sample(scale, a) * (b - a) / (2 * self.beta)
            for a, b in zip(up.state, down.state, strict=True)
        )
        return system.field.field_gradients(free, change, system.x, system.params, problem.wants)


def jacobian_products(
    system: System, state: State
) -> tuple[Callable[[State], State], Callable[[State], State]]:
    """``v ↦ U v`` and ``v ↦ Uᵀ v`` with ``U = ∂u/∂s`` at ``state``; one evaluation of ``u``."""
    with torch.enable_grad():
        leaves = tuple(s.detach().requires_grad_() for s in state)
        found = system.field.preactivation(leaves, system.drive, system.params)
        # A layer without couplings does not depend on the state; autograd must still see it.
        outputs = tuple(u + 0 * s for u, s in zip(found, leaves, strict=True))
        dummy = tuple(torch.zeros_like(s, requires_grad=True) for s in state)
        # Uᵀ v is linear in v, so its gradient with respect to v, contracted with w, is U w.
        pulled = torch.autograd.grad(
            outputs, leaves, dummy, create_graph=True, allow_unused=True, materialize_grads=True
        )

    def transposed(v: State) -> State:
        return torch.autograd.grad(
            outputs, leaves, v, retain_graph=True, allow_unused=True, materialize_grads=True
        )

    def forward(v: State) -> State:
        return torch.autograd.grad(
            pulled, dummy, v, retain_graph=True, allow_unused=True, materialize_grads=True
        )

    return forward, transposed


def jacobian_asymmetry(system: System, state: State) -> Callable[[State], State]:
    """``v ↦ (Uᵀ − U) v`` with ``U = ∂u/∂s`` at ``state``."""
    forward, transposed = jacobian_products(system, state)

    def product(v: State) -> State:
        return tuple(t - f for t, f in zip(transposed(v), forward(v), strict=True))

    return product
