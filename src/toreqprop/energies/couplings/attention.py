"""Attention between two layers of tokens, from an energy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.energies.activations import Activation
from toreqprop.energies.attention import (
    downwards,
    logsumexp,
    merge_heads,
    softmax,
    split_heads,
    upwards,
)
from toreqprop.energies.base import Gradients, Params, Wants
from toreqprop.energies.couplings.base import Coupling, Example, contrast_ends, weighted
from toreqprop.energies.pairs import Pair, Signal
from toreqprop.errors import UnsupportedModelError


def _outer(post: Signal, pre: Signal) -> Tensor:
    """``½(Σ p₊q₊ᵀ − Σ p₋q₋ᵀ)`` over samples and tokens."""
    a, b = contrast_ends(post, pre)
    return a.flatten(0, 1).mT @ b.flatten(0, 1)


@dataclass(frozen=True)
class AttentionCoupling(Coupling):
    """``Φ = s·(W p + e) + Σ_{h,i} (1/τ)·logsumexp_j(τ·q_i·k_j + b_ij)``, ``q = W_q s``,
    ``k = W_k p``: the upper layer s asks the lower one p.

    Given its neighbours Φ is convex in each layer, so that sweeps never raise the energy, whatever
    the weights. ``τ = 1/√size``. Params: ``W_q``, ``W_k`` (heads·size, width), ``b`` (heads, n, n),
    ``W`` (width, width), ``e`` (n, width); shorter sequences use the first of n positions.
    """

    heads: int = 2
    count: ClassVar[int] = 5
    one_way: ClassVar[bool] = False

    def __post_init__(self) -> None:
        checks.whole_number("heads", self.heads, 1)

    def up(self, pre: Signal, prepared: Params, post: Signal | None) -> Signal:
        if post is None:
            raise AssertionError("attention depends on both of its ends")
        _, k, attention = self._attention(post, pre, prepared)
        return self._direct(pre, prepared) + downwards(merge_heads(attention @ k), prepared[0])

    def first(self, pre: Tensor, prepared: Params, activation: Activation) -> Tensor:
        """A layer asks with what it got along the direct path."""
        guess = activation(self._direct(pre, prepared))
        return self.up(pre, prepared, guess)

    def down(self, post: Signal, pre: Signal, prepared: Params) -> Signal:
        q, _, attention = self._attention(post, pre, prepared)
        asked = downwards(merge_heads(attention.mT @ q), prepared[1])
        return downwards(post, prepared[3]) + asked

    def value(self, post: Signal, pre: Signal, prepared: Params) -> Signal:
        q = split_heads(post, prepared[0], self.heads)
        k = split_heads(pre, prepared[1], self.heads)
        sharpness, n = q.shape[-1] ** -0.5, pre.shape[1]
        scores = logsumexp((q @ k.mT) * sharpness + prepared[2][:, :n, :n])
        direct = post * self._direct(pre, prepared)
        return direct.sum((1, 2)) + scores.sum((1, 2)) / sharpness

    def gradients(
        self,
        post: Signal,
        pre: Signal,
        weight: Tensor,
        params: Params,
        prepared: Params,
        wants: Wants,
    ) -> Gradients:
        """``W_q`` sees what the upper layer was told and the layer itself, ``W_k`` what the lower
        one was asked; logits see the attention, the direct way both ends."""
        if not all(isinstance(end, Pair) for end in (post, pre)):
            return super().gradients(post, pre, weight, params, prepared, wants)
        q, k, attention = self._attention(post, pre, prepared)
        own, n = weighted(post, weight), pre.shape[1]
        told = weighted(merge_heads(attention @ k), weight)
        asked = weighted(merge_heads(attention.mT @ q), weight)
        bias = torch.zeros_like(params[2])
        logits = (weight.reshape(-1, 1, 1, 1) * attention.shift).sum(0)
        bias[:, :n, :n] = logits * q.shape[-1] ** 0.5
        place = torch.zeros_like(params[4])
        place[:n] = own.shift.sum(0)
        found = (_outer(told, post), _outer(asked, pre), bias, _outer(own, pre), place)
        return tuple(g if want else None for g, want in zip(found, wants, strict=True))

    def _attention(
        self, post: Signal, pre: Signal, prepared: Params
    ) -> tuple[Signal, Signal, Signal]:
        q = split_heads(post, prepared[0], self.heads)
        k = split_heads(pre, prepared[1], self.heads)
        n = pre.shape[1]
        logits = (q @ k.mT) * q.shape[-1] ** -0.5 + prepared[2][:, :n, :n]
        return q, k, softmax(logits)

    def _direct(self, pre: Signal, prepared: Params) -> Signal:
        return upwards(pre, prepared[3]) + prepared[4][: pre.shape[1]]

    def norm(self, params: Params, shape: tuple[int, ...]) -> float:
        raise UnsupportedModelError(
            "No Lipschitz constant is known for an attention energy of several layers: it "
            "settles because every sweep lowers its energy, not because it contracts."
        )

    @classmethod
    def examples(cls) -> list[Example]:
        return [Example(cls(2), (3, 4), ((4, 4), (4, 4), (2, 3, 3), (4, 4), (3, 4)))]
