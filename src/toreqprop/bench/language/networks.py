"""Attention that settles, by EP and by the exact gradient, and a plain transformer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop.errors import InvalidInputError
from toreqprop.gradients import ImplicitGradient, VectorFieldEP
from toreqprop.models import EquilibriumTransformer
from toreqprop.private_generator import drawing_from
from toreqprop.solvers import FixedPoint

EP, IMPLICIT, PLAIN = "ep", "implicit", "plain"
METHODS = (EP, IMPLICIT, PLAIN)
TITLES = {
    EP: "attention that settles, EP",
    IMPLICIT: "the same, implicit gradient",
    PLAIN: "plain transformer, backprop",
}


@dataclass(frozen=True)
class Shape:
    """Sizes of a network. ``radius`` bounds the projections of attention that settles, ``tol`` and
    ``beta`` are its tolerance and nudge; ``plain_hidden`` are the neurons between the two matrices
    of the plain transformer's block, so many that both have as many parameters."""

    symbols: int
    context: int = 32
    width: int = 64
    heads: int = 4
    radius: float = 1.5
    tol: float = 3e-3
    max_steps: int = 100
    beta: float = 0.01
    plain_hidden: int = 30


class PlainTransformer(nn.Module):
    """One block of causal self-attention and two dense layers, each normalised before and added.

    Shapes: (batch, length) of int64 symbols to (batch, length, symbols).
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, self.heads = shape.width, shape.heads
        self.embedding = nn.Embedding(shape.symbols, width)
        self.position = nn.Parameter(torch.randn(shape.context, width) * 0.02)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.before_attention = nn.LayerNorm(width)
        self.mixed = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.before_dense = nn.LayerNorm(width)
        self.up = nn.Linear(width, shape.plain_hidden)
        self.down = nn.Linear(shape.plain_hidden, width)
        self.before_readout = nn.LayerNorm(width)
        self.readout = nn.Linear(width, shape.symbols)

    def forward(self, x: Tensor) -> Tensor:
        s = self.embedding(x) + self.position[: x.shape[1]]
        s = s + self._attention(self.before_attention(s))
        s = s + self.down(F.gelu(self.up(self.before_dense(s))))
        found: Tensor = self.readout(self.before_readout(s))
        return found

    def _attention(self, s: Tensor) -> Tensor:
        parts = self.mixed(s).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        told = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        found: Tensor = self.output(told.transpose(1, 2).flatten(2))
        return found


def build(method: str, shape: Shape, seed: int) -> nn.Module:
    """The network of a method; EP and the implicit gradient begin with the same weights."""
    generator = torch.Generator().manual_seed(seed)
    if method == PLAIN:
        with drawing_from(generator):
            return PlainTransformer(shape)
    if method not in METHODS:
        raise InvalidInputError(f"{method!r} is no method: use one of {', '.join(METHODS)}.")
    return EquilibriumTransformer(
        shape.symbols,
        shape.context,
        variant="attention",
        causal=True,
        width=shape.width,
        heads=shape.heads,
        radius=shape.radius,
        gradient=VectorFieldEP(shape.beta) if method == EP else ImplicitGradient(),
        # Undamped: what is causal hardly feels itself again, and damping takes twice the steps.
        solver=FixedPoint(tol=shape.tol, max_steps=shape.max_steps),
        on_failure="ignore",
        generator=generator,
    )
