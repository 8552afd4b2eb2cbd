"""EP without an energy: vector fields with asymmetric Jacobians."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch

from toreqprop import checks
from toreqprop.energies import Gradients, LinearNudge, Opposed, System
from toreqprop.energies.system import per_sample
from toreqprop.gradients.base import GradientEstimator, Problem, check_beta, normalise
from toreqprop.solution import State


@dataclass(frozen=True)
class VectorFieldEP(GradientEstimator):
    """``dC/dθ ≈ −⟨(s_β − s_−β)/2β, ∂u/∂θ(s*)⟩``: what changed, times what it listens to.

    With ``correction`` the nudged phases feel the extra force ``(Uᵀ − U)(s − s*)``, ``U = ∂u/∂s``,
    and the estimate is exact as β → 0 for any Jacobian; without it, only for symmetric ones.
    """

    beta: float = 0.01
    correction: bool = True
    order: ClassVar[int | None] = 2
    bias: ClassVar[str] = "O(β²)"
    paper: ClassVar[str] = "Scellier et al. 2018; correction: Scurria et al. 2026"

    def __post_init__(self) -> None:
        check_beta(self.beta)
        checks.flag("correction", self.correction)

    @property
    def betas(self) -> tuple[float, float]:
        return self.beta, -self.beta

    def opposed(self, system: System, free: State, direction: State) -> Opposed:
        """The nudges of both phases, corrected if asked to."""
        asymmetry = jacobian_asymmetry(system, free) if self.correction else None
        one, two = (LinearNudge(direction, beta) for beta in self.betas)
        return Opposed(one, two, asymmetry, free)

    def backward(self, problem: Problem, free: State, cotangent: State) -> Gradients:
        direction, scale = normalise(cotangent)
        system = problem.system
        found = problem.relax_pair(self.opposed(system, free, direction), free)
        change = tuple(-per_sample(scale, d) * d / self.beta for d in found.shift)
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
