"""A stack of layers, each coupled to its neighbours in both directions: deep Hopfield networks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.energies.activations import Activation, Tanh
from toreqprop.energies.base import Energy, Gradients, Layered, Params, Wants
from toreqprop.energies.system import per_sample
from toreqprop.solution import State


@dataclass(frozen=True)
class LayeredEnergy(Energy, Layered):
    """``Φ = s₁·(W₁x + b₁) + Σ_{l≥2} s_l·(W_l s_{l−1} + b_l)``; params ``(W₁, b₁, W₂, b₂, …)``.

    One weight matrix couples two layers both ways:
    ``u_l = W_l s_{l−1} + b_l + W_{l+1}ᵀ s_{l+1}``.
    """

    activation: Activation = Tanh()

    def prepare(self, x: Tensor, params: Params) -> Params:
        return (F.linear(x, params[0], params[1]),)

    def initial_state(self, drive: Params, params: Params) -> State:
        """A feed-forward pass: what the equilibrium would be without feedback."""
        state = [self.activation(drive[0])]
        for weight, bias in _upper(params):
            state.append(self.activation(F.linear(state[-1], weight, bias)))
        return tuple(state)

    def layer_preactivation(
        self, layer: int, state: State, drive: Params, params: Params
    ) -> Tensor:
        """``u_l`` for one layer, counted from zero."""
        if layer == 0:
            below = drive[0]
        else:
            below = F.linear(state[layer - 1], params[2 * layer], params[2 * layer + 1])
        if layer + 1 == len(state):
            return below
        return torch.addmm(below, state[layer + 1], params[2 * layer + 2])

    def layer_activation(self, layer: int, preactivation: Tensor) -> Tensor:
        return self.activation(preactivation)

    def preactivation(self, state: State, drive: Params, params: Params) -> State:
        return tuple(
            self.layer_preactivation(layer, state, drive, params) for layer in range(len(state))
        )

    def interaction(self, state: State, x: Tensor, params: Params) -> Tensor:
        total = (state[0] * F.linear(x, params[0], params[1])).sum(1)
        for layer, (weight, bias) in enumerate(_upper(params), start=1):
            total = total + (state[layer] * F.linear(state[layer - 1], weight, bias)).sum(1)
        return total

    def energy_gradients(
        self, phases: tuple[tuple[Tensor, State], ...], x: Tensor, params: Params, wants: Wants
    ) -> Gradients:
        """The Hebbian form: each weight sees the activities at its two ends."""
        if phases[0][1][0].is_complex():
            return super().energy_gradients(phases, x, params, wants)
        posts = [_weighted_sum(phases, layer) for layer in range(len(phases[0][1]))]
        found: list[Tensor | None] = [
            -(posts[0] @ params[0]) if wants[0] else None,
            -(posts[0].mT @ x) if wants[1] else None,
            -posts[0].sum(0) if wants[2] else None,
        ]
        for layer in range(1, len(posts)):
            ends = _contrast_ends(phases, layer)
            found.append(-(ends[0].mT @ ends[1]) if wants[2 * layer + 1] else None)
            found.append(-posts[layer].sum(0) if wants[2 * layer + 2] else None)
        return tuple(found)


def _upper(params: Params) -> list[tuple[Tensor, Tensor]]:
    return list(zip(params[2::2], params[3::2], strict=True))


def _weighted_sum(phases: tuple[tuple[Tensor, State], ...], layer: int) -> Tensor:
    terms = [per_sample(w, s[layer]) * s[layer] for w, s in phases]
    return torch.stack(terms).sum(0)


def _contrast_ends(phases: tuple[tuple[Tensor, State], ...], layer: int) -> tuple[Tensor, Tensor]:
    """(post, pre) of one weight with ``postᵀ·pre = Σ_k w_k s_lᵀ s_{l−1}``, in one product."""
    if len(phases) == 2 and torch.equal(phases[0][0], -phases[1][0]):
        # w(s₊p₊ᵀ − s₋p₋ᵀ) = wΔs·p̄ᵀ + w s̄·Δpᵀ: differences first, where float32 resolves them.
        weight = per_sample(phases[0][0], phases[0][1][layer])
        (post_up, pre_up), (post_down, pre_down) = ((s[layer], s[layer - 1]) for _, s in phases)
        return (
            torch.cat([weight * (post_up - post_down), 0.5 * weight * (post_up + post_down)]),
            torch.cat([0.5 * (pre_up + pre_down), pre_up - pre_down]),
        )
    return (
        torch.cat([per_sample(w, s[layer]) * s[layer] for w, s in phases]),
        torch.cat([s[layer - 1] for _, s in phases]),
    )
