"""Where attention looks: the share of position i that goes to position L − 1 − i."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from toreqprop.energies import AttentionEnergy, AttentionField
from toreqprop.energies.attention import softmax, split_heads
from toreqprop.models import EquilibriumTransformer


@dataclass(frozen=True)
class Routing:
    """Of the attention at the equilibria of some sequences: the mean share at the mirrored position
    in the head that has most of it, and the positions whose largest share is there."""

    share: float
    right: int
    length: int
    even: float
    """What every position would get if attention were spread evenly."""


@torch.no_grad()
def routing(model: EquilibriumTransformer, tokens: Tensor) -> Routing:
    """Averages over sequences first: what is left is where a position looks whatever it holds."""
    field = model.field
    if not isinstance(field, AttentionEnergy | AttentionField):
        raise TypeError("one attention without layers above it is needed")
    state = model.equilibrium(tokens).state[0]
    params = model.system_parameters()
    q, k = (split_heads(state, weight, field.heads) for weight in params[:2])
    scale = 1.0 if isinstance(field, AttentionEnergy) else q.shape[-1] ** -0.5
    length = tokens.shape[1]
    logits = scale * (q @ k.mT) + params[-1][:, :length, :length]
    attention = softmax(logits).mean(0)  # (heads, length, length)
    mirrored = attention.flip(-1).diagonal(dim1=-2, dim2=-1)  # (heads, length)
    by_head = mirrored.mean(1)
    head = int(by_head.argmax())
    best = attention[head].argmax(-1)
    right = int((best == length - 1 - torch.arange(length)).sum())
    return Routing(float(by_head[head]), right, length, 1 / length)
