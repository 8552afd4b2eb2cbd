"""The weights of attention that relaxes, block by block.

``parts()`` lists the effective tensors of a block in the order its energy or field takes them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from toreqprop.energies import Bound
from toreqprop.models.constrained import Constrained, balls

EMBEDDING_SCALE = 0.5
"""Standard deviation of embedded tokens and positions at first."""


class Limit(NamedTuple):
    """What the spectral norms of projections stay below, and how that is done."""

    radius: float
    bound: Bound


class Positions(nn.Module):
    """Logits of positions, ``b_ij = P_q[i]·P_k[j]`` for each head, outside the state."""

    def __init__(self, heads: int, length: int, size: int) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.randn(heads, length, size) * size**-0.5)
        self.key = nn.Parameter(torch.randn(heads, length, size))

    def forward(self) -> Tensor:
        return self.query @ self.key.mT


class EnergyAttention(nn.Module):
    """One layer whose attention derives from an energy: queries and keys are all it has."""

    def __init__(self, width: int, heads: int, length: int, limit: Limit) -> None:
        super().__init__()
        self.query = bounded_linear(width, limit)
        self.key = bounded_linear(width, limit)
        self.bias = Positions(heads, length, width // heads)

    def parts(self) -> list[Tensor]:
        return [self.query.weight, self.key.weight, self.bias()]


class Attention(nn.Module):
    """All projections are bounded: values and output so that what is fed back is, queries and keys
    so that attention does not turn on a change of the state as small as a nudge makes."""

    def __init__(self, width: int, heads: int, length: int, limit: Limit) -> None:
        super().__init__()
        self.query = bounded_linear(width, limit)
        self.key = bounded_linear(width, limit)
        self.value = bounded_linear(width, limit)
        self.output = bounded_linear(width, limit)
        self.bias = Positions(heads, length, width // heads)

    def parts(self) -> list[Tensor]:
        return [
            self.query.weight,
            self.key.weight,
            self.value.weight,
            self.output.weight,
            self.bias(),
        ]


class EnergyBlock(nn.Module):
    """What joins two layers of a deep attention energy, both ways."""

    def __init__(self, width: int, heads: int, length: int, limit: Limit) -> None:
        super().__init__()
        self.query = bounded_linear(width, limit)
        self.key = bounded_linear(width, limit)
        self.bias = Positions(heads, length, width // heads)
        self.direct = bounded_linear(width, limit)
        self.position = nn.Parameter(torch.randn(length, width) * EMBEDDING_SCALE)

    def parts(self) -> list[Tensor]:
        return [
            self.query.weight,
            self.key.weight,
            self.bias(),
            self.direct.weight,
            self.position,
        ]


class FieldBlock(nn.Module):
    """A standard block on top of a layer: attention beside a direct way."""

    def __init__(self, width: int, heads: int, length: int, limit: Limit) -> None:
        super().__init__()
        self.attention = Attention(width, heads, length, limit)
        self.direct = bounded_linear(width, limit)
        self.position = nn.Parameter(torch.randn(length, width) * EMBEDDING_SCALE)

    def parts(self) -> list[Tensor]:
        return [*self.attention.parts(), self.direct.weight, self.position]


def bounded_linear(width: int, limit: Limit) -> Constrained:
    """A square weight with a bounded spectral norm."""
    weight = nn.Linear(width, width, bias=False).weight.detach()
    return Constrained(weight, *balls(limit.bound, limit.radius, (width, width)))
