"""Layers above features of which some are seen: the energy of ``CompletionNetwork``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.energies.activations import Activation, Linear, Tanh, activated, check_activation
from toreqprop.energies.base import Energy, Gradients, Pairs, Params, Signals, Wants
from toreqprop.energies.couplings import LinearCoupling
from toreqprop.energies.pairs import Signal
from toreqprop.solution import State

_COUPLING = LinearCoupling()


@dataclass(frozen=True)
class CompletionEnergy(Energy):
    """``Φ = ⟨v, m⊙x + (1 − m)⊙a⟩ + ⟨h₁, W₁v̂ + D(m⊙x, m) + b₁⟩ + Σ_l⟨h_l, W_l h_{l−1} + b_l⟩`` with
    ``v̂ = m⊙x + (1 − m)⊙v``: the mask m says which features are seen.

    What is seen drives the layer above as an input does. The neuron of a seen feature settles at
    ``x`` and drives nothing, so that ``v`` is the completed sample; that of a hidden one is linear,
    ``v = W₁ᵀh₁ + a``. What is free has an energy with symmetric couplings whatever the mask, and
    EP's gradient is exact with a mask for each sample.

    Inputs are ``(m⊙x, m)``, (batch, 2·features); params ``a`` (features,), ``D`` (h₁, 2·features),
    then ``W_l``, ``b_l``; a state is ``(v, h₁, …)``.
    """

    activation: Activation = Tanh()
    pairs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_activation(self.activation)

    def layer_activation(self, layer: int) -> Activation:
        return self.activation if layer else Linear()

    def activate_layer(self, layer: int, preactivation: Signal) -> Signal:
        return activated(self.layer_activation(layer), preactivation)

    def deactivate(self, state: State) -> State:
        return tuple(self.layer_activation(layer).inverse(s) for layer, s in enumerate(state))

    def potential(self, state: State) -> Tensor:
        parts = [self.layer_activation(layer).potential(s).sum(1) for layer, s in enumerate(state)]
        return torch.stack(parts).sum(0)

    def prepare(self, x: Tensor, params: Params) -> Params:
        """Which features are hidden, what drives each by itself, and what drives the first layer by
        what is seen."""
        seen, mask = x.chunk(2, 1)
        (weight, bias), hidden = _layers(params)[0], 1 - mask
        drive = F.linear(x, params[1], bias) + seen @ weight.mT
        return hidden, hidden * params[0] + seen, drive

    def initial_state(self, drive: Params, params: Params) -> State:
        """A pass upwards from what is seen, the hidden features at their own bias."""
        hidden, own, first = drive
        (weight, _), *upper = _layers(params)
        state = [own, self.activation(first + (hidden * own) @ weight.mT)]
        for layer in upper:
            state.append(self.activation(_COUPLING.up(state[-1], layer, None)))
        return tuple(state)

    def layer_preactivation(
        self, layer: int, state: Signals, drive: Params, params: Params
    ) -> Signal:
        """``u_l = ∂Φ/∂s_l``, the features being layer 0."""
        hidden, own, first = drive
        layers = _layers(params)
        if layer == 0:
            return (state[1] @ layers[0][0]) * hidden + own
        if layer == 1:
            u = (state[0] * hidden) @ layers[0][0].mT + first
        else:
            u = _COUPLING.up(state[layer - 1], layers[layer - 1], None)
        return u + state[layer + 1] @ layers[layer][0] if layer < len(layers) else u

    def preactivation(self, state: Signals, drive: Params, params: Params) -> Signals:
        return tuple(
            self.layer_preactivation(layer, state, drive, params) for layer in range(len(state))
        )

    def colours(self, layers: int) -> tuple[tuple[int, ...], ...]:
        """Of a chain every other layer."""
        return tuple(range(0, layers, 2)), tuple(range(1, layers, 2))

    def interaction(self, state: Signals, x: Tensor, params: Params) -> Signal:
        seen, mask = x.chunk(2, 1)
        free = state[0] * (1 - mask)
        total = (state[0] * seen + free * params[0]).sum(1)
        total = total + (state[1] * (x @ params[1].mT)).sum(1)
        ends = zip((free + seen, *state[1:-1]), state[1:], _layers(params), strict=True)
        for below, above, layer in ends:
            total = total + _COUPLING.value(above, below, layer)
        return total

    def energy_gradients(
        self, phases: Pairs, weight: Tensor, x: Tensor, params: Params, wants: Wants
    ) -> Gradients:
        """The local form: each coupling sees the activities at its two ends."""
        if phases[0].is_complex() or wants[0]:
            return super().energy_gradients(phases, weight, x, params, wants)
        seen, mask = x.chunk(2, 1)
        free, heat = phases[0] * (1 - mask), -weight
        found: list[Tensor | None] = [None, heat @ free.shift if wants[1] else None]
        found.append((heat[:, None] * phases[1].shift).mT @ x if wants[2] else None)
        ends = zip((free + seen, *phases[1:-1]), phases[1:], _layers(params), strict=True)
        for number, (below, above, layer) in enumerate(ends):
            asked = wants[3 + 2 * number : 5 + 2 * number]
            found += _COUPLING.gradients(above, below, heat, layer, layer, asked)
        return tuple(found)

    def lipschitz(self, params: Params, shapes: list[tuple[int, ...]]) -> float:
        """The norm of the block matrix of the couplings' norms; a mask makes none larger."""
        norms = [_COUPLING.norm(layer, ()) for layer in _layers(params)]
        matrix = torch.diag(torch.tensor(norms, dtype=torch.float64), -1)
        slope = max(self.activation.slope, Linear.slope)
        return slope * float(torch.linalg.eigvalsh(matrix + matrix.mT)[-1])


def _layers(params: Params) -> list[Params]:
    """Weight and bias of every layer above the features."""
    return [params[k : k + 2] for k in range(2, len(params), 2)]
