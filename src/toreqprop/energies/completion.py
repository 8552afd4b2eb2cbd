"""Features of which some are seen, and neurons above them: what ``CompletionNetwork`` settles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop import checks
from toreqprop.energies.activations import Activation, Linear, Tanh, activated, check_activation
from toreqprop.energies.base import Energy, Gradients, Pairs, Params, Signals, Wants
from toreqprop.energies.couplings import LinearCoupling
from toreqprop.energies.pairs import Signal
from toreqprop.solution import State

_COUPLING = LinearCoupling()
_DRIVERS = 2
"""The layer that what is seen drives, after features and hidden neurons."""


@dataclass(frozen=True)
class CompletionEnergy(Energy):
    """``Φ = ⟨v, m⊙x + (1 − m)⊙a⟩ + ⟨h, Wv̂ + Be + b⟩ + ⟨e, D(m⊙x, m) + d⟩/γ`` with
    ``v̂ = m⊙x + (1 − m)⊙v``: the mask m says which features are seen.

    What is seen drives the hidden neurons h as an input does, and once more through the drivers e.
    The neuron of a seen feature settles at ``x`` and drives nothing, so that ``v`` is the completed
    sample; that of a hidden one is linear, ``v = Wᵀh + a``. What is free has an energy with
    symmetric couplings whatever the mask, and EP's gradient is exact with a mask for each sample.

    ``feedback`` is γ: the potential of the drivers has 1/γ before it, as their drive has, so that
    ``e = σ(D(m⊙x, m) + d + γBᵀh)``: what comes back to them is γ times weaker than what they say.

    Inputs are ``(m⊙x, m)``, (batch, 2·features), or ``(m⊙x, m, n)``, of which the drivers see
    ``(n⊙m⊙x, n⊙m)``; params ``a`` (features,), ``W`` (hidden,
    features), ``b``, ``B`` (hidden, drivers), ``D`` (drivers, 2·features), ``d``; a state is
    ``(v, h, e)``.
    """

    activation: Activation = Tanh()
    feedback: float = 0.1
    pairs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_activation(self.activation)
        checks.between("feedback", self.feedback, 0, 1, typical="0.1 to 1")

    def temperature(self, layer: int) -> float:
        return 1 / self.feedback if layer == _DRIVERS else 1.0

    def layer_activation(self, layer: int) -> Activation:
        return self.activation if layer else Linear()

    def activate_layer(self, layer: int, preactivation: Signal) -> Signal:
        if layer == _DRIVERS:
            preactivation = preactivation * self.feedback
        return activated(self.layer_activation(layer), preactivation)

    def deactivate(self, state: State) -> State:
        return tuple(
            self.layer_activation(layer).inverse(s) * self.temperature(layer)
            for layer, s in enumerate(state)
        )

    def potential(self, state: State) -> Tensor:
        parts = [
            self.layer_activation(layer).potential(s).sum(1) * self.temperature(layer)
            for layer, s in enumerate(state)
        ]
        return torch.stack(parts).sum(0)

    def prepare(self, x: Tensor, params: Params) -> Params:
        """Which features are hidden, and what drives features, hidden neurons and drivers by what
        is seen."""
        offset, weight, bias, _, drive, threshold = params
        seen, mask, heard = _parts(x, offset)
        hidden = 1 - mask
        driven = F.linear(heard, drive, threshold) / self.feedback
        return hidden, hidden * offset + seen, F.linear(seen, weight, bias), driven

    def initial_state(self, drive: Params, params: Params) -> State:
        """A pass from what is seen, the hidden features at their own bias."""
        hidden, own, first, driven = drive
        said = self.activation(driven * self.feedback)
        u = first + (hidden * own) @ params[1].mT + said @ params[3].mT
        return own, self.activation(u), said

    def layer_preactivation(
        self, layer: int, state: Signals, drive: Params, params: Params
    ) -> Signal:
        """``u = ∂Φ/∂s`` of features, hidden neurons or drivers."""
        hidden, own, first, driven = drive
        if layer == 0:
            return (state[1] @ params[1]) * hidden + own
        if layer == 1:
            return (state[0] * hidden) @ params[1].mT + state[2] @ params[3].mT + first
        return state[1] @ params[3] + driven

    def preactivation(self, state: Signals, drive: Params, params: Params) -> Signals:
        return tuple(
            self.layer_preactivation(layer, state, drive, params) for layer in range(len(state))
        )

    def colours(self, layers: int) -> tuple[tuple[int, ...], ...]:
        """Features and drivers meet in the hidden neurons alone."""
        return (0, _DRIVERS), (1,)

    def interaction(self, state: Signals, x: Tensor, params: Params) -> Signal:
        offset, weight, bias, back, drive, threshold = params
        seen, mask, heard = _parts(x, offset)
        free = state[0] * (1 - mask)
        total = (state[0] * seen + free * offset).sum(1)
        total = total + _COUPLING.value(state[1], free + seen, (weight, bias))
        total = total + (state[1] * (state[2] @ back.mT)).sum(1)
        return total + (state[2] * (F.linear(heard, drive, threshold) / self.feedback)).sum(1)

    def energy_gradients(
        self, phases: Pairs, weight: Tensor, x: Tensor, params: Params, wants: Wants
    ) -> Gradients:
        """The local form: each coupling sees the activities at its two ends."""
        if phases[0].is_complex() or wants[0]:
            return super().energy_gradients(phases, weight, x, params, wants)
        seen, mask, heard = _parts(x, params[0])
        free, heat = phases[0] * (1 - mask), -weight
        found: list[Tensor | None] = [None, heat @ free.shift if wants[1] else None]
        own, back = (params[1], params[2]), (params[3], params[2])
        found += _COUPLING.gradients(phases[1], free + seen, heat, own, own, wants[2:4])
        asked = (wants[4], False)
        found.append(_COUPLING.gradients(phases[1], phases[2], heat, back, back, asked)[0])
        said = (heat / self.feedback)[:, None] * phases[2].shift
        found += [said.mT @ heard if wants[5] else None, said.sum(0) if wants[6] else None]
        return tuple(found)

    def lipschitz(self, params: Params, shapes: list[tuple[int, ...]]) -> float:
        """``‖(W, √γB)‖``: features and drivers are coupled through the hidden neurons alone; a mask
        makes nothing larger."""
        joint = torch.cat([params[1], params[3] * self.feedback**0.5], 1)
        slope = max(self.activation.slope, Linear.slope)
        return slope * _COUPLING.norm((joint, params[2]), ())


def _parts(x: Tensor, offset: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What is seen, the mask, and what the drivers see of both."""
    features = len(offset)
    seen, mask = x[:, :features], x[:, features : 2 * features]
    if x.shape[1] == 2 * features:
        return seen, mask, x
    heard = x[:, 2 * features :]
    return seen, mask, torch.cat([seen * heard, mask * heard], 1)
