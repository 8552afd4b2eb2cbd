"""Faults of what joins layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from toreqprop.energies import (
    AttentionEnergy,
    AveragePooling,
    LinearCoupling,
    MaxPooling,
    SoftPooling,
)
from toreqprop.energies.activations import Sigmoid
from toreqprop.energies.attention import merge_heads, softmax, split_heads
from toreqprop.energies.circuits.energy import ResistiveEnergy
from toreqprop.energies.couplings import convolution
from toreqprop.verify.mutations.estimators import times
from toreqprop.verify.mutations.mutation import Mutation, swapped

AREA = "couplings"


def _weaker_down(right: Any) -> Any:
    return lambda self, post, pre, prepared: 0.95 * right(self, post, pre, prepared)


def _to_everyone(right: Any) -> Any:
    """What a maximum hands down is shared out among its window."""
    return lambda self, coarse, fine: AveragePooling(self.size).spread(coarse, fine)


def _warmer(right: Any) -> Any:
    return lambda self, coarse, fine: right(
        replace(self, temperature=1.2 * self.temperature), coarse, fine
    )


def _flipped(right: Any) -> Any:
    return lambda *given: right(*given).flip(-1)


def _unanswered(right: Any) -> Any:
    def preactivation(self: Any, state: Any, drive: Any, params: Any) -> Any:
        query, key, _ = params
        q, k = (split_heads(state[0], weight, self.heads) for weight in (query, key))
        attention = softmax(q @ k.mT + drive[1])
        asked, answered = merge_heads(attention @ k), merge_heads(attention.mT @ q)
        return (drive[0] + asked @ query + (answered @ key) * 0.9,)

    return preactivation


def _skewed(right: Any) -> Any:
    def pair(self: Any, center: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        mean, half = right(self, center, shift)
        return mean, torch.where(center > 0.5, half, 0.9 * half)

    return pair


MUTATIONS = (
    Mutation(
        "feedback through 0.95 of a matrix", AREA, "a stack hears less from above than it sends up",
        67, swapped(LinearCoupling, "down", _weaker_down),
    ),
    Mutation(
        "a maximum feeds everyone", AREA, "what max pooling hands down is shared out", 69,
        swapped(MaxPooling, "spread", _to_everyone),
    ),
    Mutation(
        "soft pooling warmer on its way down", AREA, "by a fifth", 69,
        swapped(SoftPooling, "spread", _warmer),
    ),
    Mutation(
        "gradient of averaged kernels x0.7", AREA, "where average pooling is folded in", 69,
        swapped(AveragePooling, "unfold", lambda right: lambda self, g: 0.7 * right(self, g)),
    ),
    Mutation(
        "gradients of kernels mirrored", AREA, "a convolution learns its mirror image", 69,
        swapped(convolution, "conv2d_weight", _flipped),
    ),
    Mutation(
        "attention answers 0.9", AREA, "those that are attended to move too little", 69,
        swapped(AttentionEnergy, "preactivation", _unanswered),
    ),
    Mutation(
        "sigmoid's shift 0.9 below the middle", AREA, "differences of states are not what they are",
        69, swapped(Sigmoid, "pair", _skewed),
    ),
    Mutation(
        "gradient of a crossbar x0.7", AREA, "of a resistive network's first layer", 69,
        swapped(ResistiveEnergy, "energy_gradients", times(1, 0.7)),
    ),
)  # fmt: skip
