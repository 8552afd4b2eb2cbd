"""The two contracts of a system: a vector field, and an energy whose field is conservative.

A system is mathematics without tensors of its own: parameters and inputs are arguments, so that
one object serves every phase, dtype and device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from toreqprop.energies.activations import Activation
from toreqprop.solution import State

Params = tuple[Tensor, ...]
Wants = tuple[bool, ...]
"""Which of (x, *params) a gradient is asked for."""
Gradients = tuple[Tensor | None, ...]
"""One entry for each of (x, *params): the gradient, or None where it was not asked for."""


class VectorField(ABC):
    """A system with equilibria ``s = σ(u(s, x; θ))``; ``u`` need not derive from an energy."""

    activation: Activation

    @property
    def analytic(self) -> bool:
        """Whether the map extends to complex states (needed by holomorphic EP)."""
        return self.activation.analytic

    def prepare(self, x: Tensor, params: Params) -> Params:
        """All that depends on ``x`` and ``θ`` but not on ``s``: computed once for every phase."""
        return (x,)

    @abstractmethod
    def initial_state(self, drive: Params, params: Params) -> State:
        """Where the free relaxation starts, one tensor (batch, ...) per free layer."""

    @abstractmethod
    def preactivation(self, state: State, drive: Params, params: Params) -> State:
        """``u(s, x; θ)``, in the shapes of the state; ``drive`` comes from :meth:`prepare`."""

    def activate(self, preactivation: State) -> State:
        """``σ(u)``, layer by layer."""
        return tuple(self.activate_layer(layer, u) for layer, u in enumerate(preactivation))

    def activate_layer(self, layer: int, preactivation: Tensor) -> Tensor:
        """``σ(u_l)`` for one layer, counted from zero."""
        return self.activation(preactivation)

    def field_gradients(
        self, state: State, weight: State, x: Tensor, params: Params, wants: Wants
    ) -> Gradients:
        """``⟨weight, ∂u/∂θ(s)⟩`` for x and every parameter: local, at one state."""

        def total(leaf_x: Tensor, leaves: Params) -> Tensor:
            u = self.preactivation(state, self.prepare(leaf_x, leaves), leaves)
            return sum((torch.sum(w * v) for w, v in zip(weight, u, strict=True)), x.new_zeros(()))

        return differentiate(total, x, params, wants)


@runtime_checkable
class Layerwise(Protocol):
    """A field that can update one layer at a time, coupled to its neighbours alone."""

    def layer_preactivation(
        self, layer: int, state: State, drive: Params, params: Params
    ) -> Tensor:
        """``u_l`` for one layer, counted from zero."""

    def activate_layer(self, layer: int, preactivation: Tensor) -> Tensor:
        """``σ(u_l)``."""


class Energy(VectorField):
    """A system with interaction ``Φ(s, x; θ)``, ``u = ∂Φ/∂s`` and energy ``E = G(s) − Φ``."""

    @abstractmethod
    def interaction(self, state: State, x: Tensor, params: Params) -> Tensor:
        """``Φ(s, x; θ)`` for each sample, shape (batch,)."""

    def preactivation(self, state: State, drive: Params, params: Params) -> State:
        """``∂Φ/∂s`` by autograd; override it with the closed form where speed matters.

        Differentiable once more, as the oracles need the Jacobian ``∂u/∂s``.
        """
        keep = torch.is_grad_enabled()
        with torch.enable_grad():
            leaves = tuple(s if s.requires_grad else s.detach().requires_grad_() for s in state)
            total = self.interaction(leaves, drive[0], params).sum()
            if total.is_complex():
                # For analytic Φ the gradient of its real part is the conjugate of dΦ/ds.
                found = torch.autograd.grad(total.real, leaves, create_graph=keep)
                return tuple(g.conj() for g in found)
            return torch.autograd.grad(total, leaves, create_graph=keep)

    def potential(self, state: State) -> Tensor:
        """``G(s)`` for each sample, shape (batch,)."""
        parts = [self.activation.potential(s).flatten(1).sum(1) for s in state]
        return torch.stack(parts).sum(0)

    def energy(self, state: State, x: Tensor, params: Params) -> Tensor:
        """``E = G(s) − Φ(s, x; θ)`` for each sample, shape (batch,)."""
        return self.potential(state) - self.interaction(state, x, params)

    def energy_gradients(
        self,
        phases: tuple[tuple[Tensor, State], ...],
        x: Tensor,
        params: Params,
        wants: Wants,
    ) -> Gradients:
        """``Σ_k Σ_i w_k[i] · ∂E_i/∂θ(s_k)`` over phases ``(w_k (batch,), s_k)``.

        Local in space and time: the states are constants here, no trajectory is differentiated.
        ``G`` does not depend on θ, so only the interaction counts. Of complex phases the real
        part is taken.
        """
        dtype = phases[0][1][0].dtype

        def total(leaf_x: Tensor, leaves: Params) -> Tensor:
            cast_x, cast = leaf_x.to(dtype), tuple(p.to(dtype) for p in leaves)
            terms = [-(w * self.interaction(s, cast_x, cast)).sum() for w, s in phases]
            return torch.stack(terms).sum().real

        return differentiate(total, x, params, wants)


def differentiate(total, x: Tensor, params: Params, wants: Wants) -> Gradients:  # type: ignore[no-untyped-def]
    """Gradients of the scalar ``total(x, params)``, only where ``wants`` says so."""
    with torch.enable_grad():
        leaves = tuple(
            t.detach().requires_grad_(want) for t, want in zip((x, *params), wants, strict=True)
        )
        asked = [leaf for leaf, want in zip(leaves, wants, strict=True) if want]
        found = iter(
            torch.autograd.grad(
                total(leaves[0], leaves[1:]), asked, allow_unused=True, materialize_grads=True
            )
            if asked
            else ()
        )
    return tuple(next(found) if want else None for want in wants)
