"""The two contracts of a system: a vector field, and an energy whose field is conservative.

A system is mathematics without tensors of its own: parameters and inputs are arguments, so that
one object serves every phase, dtype and device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from toreqprop.energies.activations import HIGHER, Activation, activated
from toreqprop.energies.pairs import Pair, Signal, shift
from toreqprop.errors import UnsupportedModelError
from toreqprop.solution import State

Params = tuple[Tensor, ...]
Wants = tuple[bool, ...]
"""Which of (x, *params) a gradient is asked for."""
Gradients = tuple[Tensor | None, ...]
"""One entry for each of (x, *params): the gradient, or None where it was not asked for."""
Signals = tuple[Any, ...]
"""A `State`, or the two states of opposite nudges as one `Pair` per layer."""
Pairs = tuple[Pair, ...]


class VectorField(ABC):
    """A system with equilibria ``s = σ(u(s, x; θ))``; ``u`` need not derive from an energy."""

    activation: Activation

    pairs: ClassVar[bool] = False
    """Whether `preactivation` (and an energy's `interaction`) take `Pair`s, so that differences of
    nudged phases are exact in every precision; else they are taken in double precision."""

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
    def preactivation(self, state: Signals, drive: Params, params: Params) -> Signals:
        """``u(s, x; θ)``, in the shapes of the state; ``drive`` comes from :meth:`prepare`."""

    def lipschitz(self, params: Params, shapes: list[tuple[int, ...]]) -> float:
        """A bound on the Lipschitz constant of ``f`` over the states σ can have.

        It holds in the norm that weights the squares of each layer by `temperature` (all one but
        for weak feedback). ``shapes`` are those of the layers, without the batch.

        Raises:
            UnsupportedModelError: none is known, and why.
        """
        raise UnsupportedModelError(f"No Lipschitz constant of {type(self).__name__} is known.")

    def layer_activation(self, layer: int) -> Activation:
        """σ of a layer, counted from zero."""
        return self.activation

    def temperature(self, layer: int) -> float:
        """What multiplies a layer's potential, at least one; see `StackEnergy`."""
        return 1.0

    def rounding(self, state: State, x: Tensor, params: Params) -> State | None:
        """A bound on the rounding of every entry of ``u`` as computed in float64, or None.

        ``γ_n·M``, with ``M`` the same sums over absolute values and n their length: what makes
        `Solution.error_bound` a theorem.
        """
        return None

    def activate(self, preactivation: Signals) -> Signals:
        """``σ(u)``, layer by layer."""
        return tuple(self.activate_layer(layer, u) for layer, u in enumerate(preactivation))

    def deactivate(self, state: State) -> State:
        """``u`` with ``σ(u) = s``, layer by layer."""
        return tuple(self.activation.inverse(s) for s in state)

    def activate_layer(self, layer: int, preactivation: Signal) -> Signal:
        """``σ(u_l)`` for one layer, counted from zero."""
        return activated(self.activation, preactivation)

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
    """A field whose layers are coupled to their neighbours alone, so that they can be swept.

    Given its neighbours, ``s_l ← σ(u_l)`` must not raise the energy: ``Φ`` is convex (linear, for
    instance) in each layer on its own.
    """

    def layer_preactivation(
        self, layer: int, state: Signals, drive: Params, params: Params
    ) -> Signal:
        """``u_l`` for one layer, counted from zero."""

    def activate_layer(self, layer: int, preactivation: Signal) -> Signal:
        """``σ(u_l)``."""

    def colours(self, layers: int) -> tuple[tuple[int, ...], ...]:
        """Groups of layers without a coupling inside a group, the lowest layer's first."""


class Energy(VectorField):
    """A system with interaction ``Φ(s, x; θ)``, ``u = ∂Φ/∂s`` and energy ``E = G(s) − Φ``."""

    @abstractmethod
    def interaction(self, state: Signals, x: Tensor, params: Params) -> Signal:
        """``Φ(s, x; θ)`` for each sample, shape (batch,)."""

    def preactivation(self, state: Signals, drive: Params, params: Params) -> Signals:
        """``∂Φ/∂s`` by autograd; override it with the closed form where speed matters.

        Differentiable once more, as the oracles need the Jacobian ``∂u/∂s``. Of a pair the one
        derivative of ``Φ̃ = ½(Φ₊ − Φ₋)`` gives both: ``ũ = ∂Φ̃/∂center`` and ``ū = ∂Φ̃/∂shift``.
        """
        keep = torch.is_grad_enabled()
        paired = isinstance(state[0], Pair)
        flat = [s.center for s in state] + [s.shift for s in state] if paired else list(state)
        with torch.enable_grad():
            leaves = [s if s.requires_grad else s.detach().requires_grad_() for s in flat]
            count = len(state)
            given: Signals = (
                tuple(map(Pair, leaves[:count], leaves[count:])) if paired else tuple(leaves)
            )
            value = self.interaction(given, drive[0], params)
            total = (shift(value) if paired else value).sum()
            # For analytic Φ the gradient of its real part is the conjugate of dΦ/ds.
            found = torch.autograd.grad(total.real, leaves, create_graph=keep)
        if total.is_complex():
            found = tuple(g.conj() for g in found)
        return tuple(map(Pair, found[count:], found[:count])) if paired else found

    def potential(self, state: State) -> Tensor:
        """``G(s)`` for each sample, shape (batch,)."""
        parts = [self.activation.potential(s).flatten(1).sum(1) for s in state]
        return torch.stack(parts).sum(0)

    def energy(self, state: State, x: Tensor, params: Params) -> Tensor:
        """``E = G(s) − Φ(s, x; θ)`` for each sample, shape (batch,)."""
        return self.potential(state) - self.interaction(state, x, params)

    def energy_gradients(
        self, phases: Pairs, weight: Tensor, x: Tensor, params: Params, wants: Wants
    ) -> Gradients:
        """``Σ_i w_i·½[∂E_i/∂θ(s₊) − ∂E_i/∂θ(s₋)]`` with ``weight`` w (batch,).

        Local in space and time: the states are constants here, no trajectory is differentiated.
        ``G`` does not depend on θ, so only the interaction counts. Of complex phases the real
        part is taken.
        """
        dtype = phases[0].dtype
        exact = dtype if self.pairs else HIGHER.get(dtype, dtype)

        def total(leaf_x: Tensor, leaves: Params) -> Tensor:
            x_, params_ = leaf_x.to(exact), tuple(p.to(exact) for p in leaves)
            if self.pairs:
                half = shift(self.interaction(phases, x_, params_))
            else:
                cast = [(p.center.to(exact), p.shift.to(exact)) for p in phases]
                up = self.interaction(tuple(c + d for c, d in cast), x_, params_)
                down = self.interaction(tuple(c - d for c, d in cast), x_, params_)
                half = 0.5 * (up - down)
            return -(weight * half).sum().real

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
