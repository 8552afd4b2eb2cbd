"""Layers of neurons joined by couplings: one energy for every stack."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.energies.activations import Activation, Tanh, activated, check_activation
from toreqprop.energies.base import Energy, Gradients, Pairs, Params, Signals, Wants
from toreqprop.energies.couplings import Coupling, LinearCoupling
from toreqprop.energies.pairs import Signal, shift
from toreqprop.errors import InvalidInputError, UnsupportedModelError
from toreqprop.kernels import compiled_hebbian
from toreqprop.solution import State
from toreqprop.tracing import all_plain


@dataclass(frozen=True)
class Skip:
    """A coupling past the layers between, ``t_target·⟨s_target, F(s_source)⟩``; layers from 0."""

    source: int
    target: int
    coupling: Coupling

    def __post_init__(self) -> None:
        checks.whole_number("source", self.source, 0)
        checks.whole_number("target", self.target, self.source + 1)
        checks.instance("coupling", self.coupling, Coupling, "use IdentityCoupling()")


@dataclass(frozen=True)
class StackEnergy(Energy):
    """``Φ = Σ_l t_l·⟨s_l, F_l(s_{l−1}; θ_l)⟩ + skips`` with ``s_{−1} = x``.

    ``s_l = σ(F_l(s_{l−1}) + γ·F'_{l+1}(s_l)ᵀ s_{l+1})``: what comes down is γ times weaker
    than what goes up. The strength γ of the way back is ``feedback``: every layer has its
    temperature ``t_l``, one at the top and ``t_l = t_{l+1}/γ`` below, which multiplies its
    potential too, so that there is one energy. With γ → 0 the equilibrium is a forward pass and EP
    is backpropagation (Xie and Seung 2003).

    ``activation`` is one for all layers or one for each; params are those of the couplings, one
    after the other, then of the skips.
    """

    couplings: tuple[Coupling, ...]
    activation: Activation = Tanh()
    feedback: float = 1.0
    activations: tuple[Activation, ...] = ()
    skips: tuple[Skip, ...] = ()
    pairs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.members("couplings", self.couplings, Coupling, "(LinearCoupling(),)", least=1)
        check_activation(self.activation)
        checks.between("feedback", self.feedback, 0, 1, typical="0.1 to 1")
        checks.members("activations", self.activations, Activation, "(Tanh(), Linear())")
        checks.members("skips", self.skips, Skip, "(Skip(0, 2, IdentityCoupling()),)")
        layers = len(self.couplings)
        if self.activations and len(self.activations) != layers:
            raise InvalidInputError(
                f"activations must be one for each of {layers} couplings, got "
                f"{len(self.activations)}."
            )
        if any(skip.target >= layers for skip in self.skips):
            raise InvalidInputError(f"skips must end below layer {layers}, got {self.skips}.")

    @property
    def analytic(self) -> bool:
        """The first layer's drive is a constant; the couplings above must be analytic."""
        upper = [*self.couplings[1:], *(s.coupling for s in self.skips)]
        return all(a.analytic for a in self._activations()) and all(c.analytic for c in upper)

    @cached_property
    def is_dense(self) -> bool:
        """Whether it is a chain of matrices and tanh units, which compiled code relaxes."""
        return (
            not (self.skips or self.activations) and self.activation == Tanh() and self.of_matrices
        )

    @property
    def of_matrices(self) -> bool:
        """Whether every coupling from layer to layer is a matrix."""
        return set(map(type, self.couplings)) == {LinearCoupling}

    @property
    def one_way(self) -> bool:
        """Whether without feedback it is a feed-forward network: then `initial_state` is its pass,
        and with γ → 0 EP's gradient becomes that of backpropagation through it."""
        return all(c.one_way for c in (*self.couplings, *(s.coupling for s in self.skips)))

    def _activations(self) -> tuple[Activation, ...]:
        return self.activations or (self.activation,) * len(self.couplings)

    def temperature(self, layer: int) -> float:
        """``t_l`` of a layer, counted from zero."""
        return 1.0 if self.feedback == 1 else self.feedback ** (layer + 1 - len(self.couplings))

    def layer_activation(self, layer: int) -> Activation:
        return self._activations()[layer]

    def _heated(self, layer: int, value: Signal) -> Signal:
        return value if self.feedback == 1 else value * self.temperature(layer)

    def activate_layer(self, layer: int, preactivation: Signal) -> Signal:
        if self.feedback != 1:
            preactivation = preactivation / self.temperature(layer)
        return activated(self._activations()[layer], preactivation)

    def deactivate(self, state: State) -> State:
        pairs = zip(self._activations(), state, strict=True)
        return tuple(self._heated(layer, a.inverse(s)) for layer, (a, s) in enumerate(pairs))

    def potential(self, state: State) -> Tensor:
        parts = [
            self._heated(layer, activation.potential(s).flatten(1).sum(1))
            for layer, (activation, s) in enumerate(zip(self._activations(), state, strict=True))
        ]
        return torch.stack(parts).sum(0)

    def _split(self, params: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        """The parameters of each coupling, then of each skip."""
        at = 0
        for coupling in (*self.couplings, *(s.coupling for s in self.skips)):
            yield params[at : at + coupling.count]
            at += coupling.count

    def prepare(self, x: Tensor, params: Params) -> Params:
        """The first layer's drive, then what the couplings make of their parameters, once, and
        behind it what was decided on the way of the first."""
        everything = zip(
            (*self.couplings, *(s.coupling for s in self.skips)), self._split(params), strict=True
        )
        (first, own), *upper = everything
        drive, trail = first.drive(x, first.prepare(own))
        found = [drive]
        for coupling, part in upper:
            found += coupling.prepare(part)
        return (*found, *trail)

    def first_trail(self, drive: Params) -> Params:
        """What was decided on the way of the first coupling, where that is known."""
        return drive[1 + sum(len(part) for part in self.prepared(drive)[1:]) :]

    def prepared(self, drive: Params) -> list[Params]:
        """By coupling; the first has nothing left but its drive."""
        rest = (drive[0],) * self.couplings[0].count + drive[1:]
        return list(self._split(rest))

    def initial_state(self, drive: Params, params: Params) -> State:
        """A pass upwards: what the equilibrium would be without feedback."""
        prepared = self.prepared(drive)
        state = [self._activations()[0](drive[0])]
        for layer in range(1, len(self.couplings)):
            coupling = self.couplings[layer]
            u = coupling.first(state[-1], prepared[layer], self._activations()[layer])
            for number, skip in enumerate(self.skips, start=len(self.couplings)):
                if skip.target == layer:
                    u = u + skip.coupling.up(state[skip.source], prepared[number], None)
            state.append(self._activations()[layer](u))
        return tuple(state)

    def layer_preactivation(
        self, layer: int, state: Signals, drive: Params, params: Params
    ) -> Signal:
        """``u_l = ∂Φ/∂s_l`` for one layer, counted from zero."""
        return self.falling(layer, state, drive, self.rising(layer, state, drive))

    def rising(self, layer: int, state: Signals, drive: Params) -> Signal:
        """The part of ``u_l`` that comes from below."""
        prepared = self.prepared(drive)
        u: Signal = drive[0]
        if layer > 0:
            u = self.couplings[layer].up(state[layer - 1], prepared[layer], state[layer])
        for number, skip in enumerate(self.skips, start=len(self.couplings)):
            if skip.target == layer:
                u = u + skip.coupling.up(state[skip.source], prepared[number], state[layer])
        return self._heated(layer, u)

    def falling(self, layer: int, state: Signals, drive: Params, u: Signal) -> Signal:
        """``u`` and the part of ``u_l`` that comes from above."""
        prepared = self.prepared(drive)
        if layer + 1 < len(state):
            coupling = self.couplings[layer + 1]
            fed_back = coupling.down(state[layer + 1], state[layer], prepared[layer + 1])
            u = u + self._heated(layer + 1, fed_back)
        for number, skip in enumerate(self.skips, start=len(self.couplings)):
            if skip.source == layer:
                above = state[skip.target]
                fed_back = skip.coupling.down(above, state[layer], prepared[number])
                u = u + self._heated(skip.target, fed_back)
        return u

    def preactivation(self, state: Signals, drive: Params, params: Params) -> Signals:
        return tuple(
            self.layer_preactivation(layer, state, drive, params) for layer in range(len(state))
        )

    def colours(self, layers: int) -> tuple[tuple[int, ...], ...]:
        """Greedily, from the bottom: layers of one colour do not touch, so a sweep may update them
        together. A chain has two colours."""
        touching = {(layer, layer + 1) for layer in range(layers - 1)}
        touching |= {(s.source, s.target) for s in self.skips}
        groups: list[list[int]] = []
        for layer in range(layers):
            for group in groups:
                if all((other, layer) not in touching for other in group):
                    group.append(layer)
                    break
            else:
                groups.append([layer])
        return tuple(map(tuple, groups))

    def interaction(self, state: Signals, x: Tensor, params: Params) -> Signal:
        parts, below = list(self._split(params)), (x, *state)
        terms = []
        for layer, coupling in enumerate(self.couplings):
            value = coupling.value(state[layer], below[layer], coupling.prepare(parts[layer]))
            terms.append(self._heated(layer, value))
        for number, skip in enumerate(self.skips, start=len(self.couplings)):
            prepared = skip.coupling.prepare(parts[number])
            value = skip.coupling.value(state[skip.target], state[skip.source], prepared)
            terms.append(self._heated(skip.target, value))
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    def energy_gradients(
        self, phases: Pairs, weight: Tensor, x: Tensor, params: Params, wants: Wants
    ) -> Gradients:
        """The local form: each coupling sees the activities at its two ends."""
        if phases[0].is_complex():
            return super().energy_gradients(phases, weight, x, params, wants)
        at_once = self._dense_gradients(phases, weight, x, wants)
        if at_once is not None:
            return at_once
        parts = list(self._split(params))
        wanted = list(self._split(wants[1:]))
        ends = [(layer, layer - 1, self.couplings[layer]) for layer in range(len(phases))]
        ends += [(s.target, s.source, s.coupling) for s in self.skips]
        found: list[Tensor | None] = [None]
        # Winners of poolings that were the same in both phases need not be found again.
        memory = getattr(phases, "memory", ())
        decided, first = iter(memory), len(memory) == sum(c.trails for c in self.couplings)
        for number, (above, below, coupling) in enumerate(ends):
            own, heat = parts[number], -self.temperature(above) * weight
            prepared = coupling.prepare(own)
            pre = x if below < 0 else phases[below]
            if number == 0 and wants[0]:
                fed_back = shift(coupling.down(phases[0], x, prepared))
                found[0] = fed_back * heat.reshape(-1, *[1] * (x.dim() - 1))
            known = below >= 0 or first
            trail = tuple(itertools.islice(decided, coupling.trails)) if known else ()
            if trail:
                found += coupling.settled_gradients(
                    phases[above], pre, heat, prepared, wanted[number], trail
                )
                continue
            found += coupling.gradients(
                phases[above],
                pre,
                heat,
                own,
                prepared,
                wanted[number],
            )
        return tuple(found)

    def _dense_gradients(
        self, phases: Pairs, weight: Tensor, x: Tensor, wants: Wants
    ) -> Gradients | None:
        """All of them by one compiled call, where that serves: every matrix and bias is asked for,
        and nothing of the input."""
        compiled = compiled_hebbian() if self.is_dense and not wants[0] and all(wants[1:]) else None
        if compiled is None:
            return None
        state = [*[p.center for p in phases], *[p.shift for p in phases]]
        seen = (x, weight, *state)
        if torch.is_grad_enabled() or x.dim() != 2 or x.shape[:1] != weight.shape:
            return None
        if not all_plain(seen) or not all(t.is_contiguous() for t in seen):
            return None
        heat = [-self.temperature(layer) for layer in range(len(phases))]
        return (None, *compiled.stack(state, x, weight, heat))

    def lipschitz(self, params: Params, shapes: list[tuple[int, ...]]) -> float:
        """The norm of the block matrix of the couplings' norms, times the activation's slope.

        The Jacobian has ``√γ·F'`` beside its diagonal, in the norm that weights layers by their
        temperatures, and on it what Φ is curved in the lower layer.
        """
        count = len(self.couplings)
        matrix = torch.zeros(count, count, dtype=torch.float64)
        parts = list(self._split(params))
        ends = [(layer, layer - 1, self.couplings[layer]) for layer in range(1, count)]
        ends += [(s.target, s.source, s.coupling) for s in self.skips]
        slopes = [a.slope for a in self._activations()]
        for number, (above, below, coupling) in enumerate(ends, start=1):
            shape = shapes[below] if shapes else ()
            norm = coupling.norm(parts[number], shape)
            weak = self.feedback ** (above - below)
            matrix[above, below] += weak**0.5 * norm
            curved = coupling.curvature(parts[number], shape)
            if curved:
                reach = self._activations()[above].reach
                if reach == float("inf"):
                    raise UnsupportedModelError(
                        "With unbounded states the curvature of soft pooling is unbounded: use "
                        "activation=HardSigmoid() or pooling=AveragePooling()."
                    )
                matrix[below, below] += weak * curved * reach / 2
        symmetric = matrix + matrix.mT
        return max(slopes) * float(torch.linalg.eigvalsh(symmetric)[-1])

    def rounding(self, state: State, x: Tensor, params: Params) -> State | None:
        parts = list(self._split(params))
        if self.skips or any(not c.rounds for c in self.couplings):
            return None
        below, found = (x, *state), []
        for layer, coupling in enumerate(self.couplings):
            bound = coupling.up_rounding(below[layer], coupling.prepare(parts[layer]))
            total = self._heated(layer, bound)
            if layer + 1 < len(state):
                above = self.couplings[layer + 1]
                ready = above.prepare(parts[layer + 1])
                bound = above.down_rounding(state[layer + 1], state[layer], ready)
                total = total + self._heated(layer + 1, bound)
            found.append(total)
        return tuple(found)
