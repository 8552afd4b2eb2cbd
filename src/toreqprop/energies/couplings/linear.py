"""Matrices, and couplings without parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop import checks
from toreqprop.energies.base import Gradients, Params, Wants
from toreqprop.energies.couplings.base import Coupling, Example, weighted
from toreqprop.energies.dense import gamma
from toreqprop.energies.pairs import Pair, Signal, center
from toreqprop.errors import InvalidInputError
from toreqprop.kernels import compiled_hebbian
from toreqprop.tracing import all_plain


@dataclass(frozen=True)
class LinearCoupling(Coupling):
    """``F(s) = W s + b`` on the last dimension; params ``W`` (out, in), ``b`` (out,)."""

    count: ClassVar[int] = 2
    linear: ClassVar[bool] = True
    rounds: ClassVar[bool] = True

    def up(self, pre: Signal, prepared: Params, post: Signal | None) -> Signal:
        return F.linear(pre, prepared[0], prepared[1])

    def lift(self, move: Tensor, prepared: Params) -> Tensor:
        return F.linear(move, prepared[0])

    def down(self, post: Signal, pre: Signal, prepared: Params) -> Signal:
        return post @ prepared[0]

    def gradients(
        self,
        post: Signal,
        pre: Signal,
        weight: Tensor,
        params: Params,
        prepared: Params,
        wants: Wants,
    ) -> Gradients:
        compiled = compiled_hebbian() if all(wants) and isinstance(post, Pair) else None
        if compiled is not None:
            ends = (post.center, post.shift)
            other = (pre.center, pre.shift) if isinstance(pre, Pair) else (pre, None)
            seen = (*ends, *other) if isinstance(pre, Pair) else (*ends, pre)
            if compiled.serves(seen) and all_plain((*seen, weight)):
                return compiled.matrix_and_bias(ends, other, weight)
        matrix = bias = None
        moved = weighted(post.shift if isinstance(post, Pair) else post, weight).flatten(0, -2)
        if wants[0]:
            # ½(p₊q₊ᵀ − p₋q₋ᵀ) = p̃·q̄ᵀ + p̄·q̃ᵀ: differences first.
            matrix = moved.mT @ center(pre).flatten(0, -2)
            if isinstance(pre, Pair):
                turned = weighted(pre.shift, weight).flatten(0, -2)
                matrix.addmm_(center(post).flatten(0, -2).mT, turned)
        if wants[1]:
            bias = moved.sum(0)
        return matrix, bias

    def norm(self, params: Params, shape: tuple[int, ...]) -> float:
        return float(torch.linalg.matrix_norm(params[0].detach().double(), ord=2))

    def up_rounding(self, pre: Tensor, prepared: Params) -> Tensor:
        magnitude = F.linear(pre.abs(), prepared[0].abs(), prepared[1].abs())
        return gamma(pre.shape[-1] + 2) * magnitude

    def down_rounding(self, post: Tensor, pre: Tensor, prepared: Params) -> Tensor:
        return gamma(post.shape[-1] + 2) * (post.abs() @ prepared[0].abs())

    @classmethod
    def examples(cls) -> list[Example]:
        return [
            Example(cls(), (5,), ((4, 5), (4,))),
            Example(cls(), (3, 5), ((4, 5), (4,))),
        ]


@dataclass(frozen=True)
class IdentityCoupling(Coupling):
    """``F(s) = scale·s``: a skip connection, or inputs that drive neurons one by one."""

    scale: float = 1.0
    linear: ClassVar[bool] = True
    rounds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.number("scale", self.scale)

    def up(self, pre: Signal, prepared: Params, post: Signal | None) -> Signal:
        return pre if self.scale == 1 else pre * self.scale

    def down(self, post: Signal, pre: Signal, prepared: Params) -> Signal:
        return post if self.scale == 1 else post * self.scale

    def norm(self, params: Params, shape: tuple[int, ...]) -> float:
        return abs(self.scale)

    def up_rounding(self, pre: Tensor, prepared: Params) -> Tensor:
        return gamma(1) * abs(self.scale) * pre.abs()

    def down_rounding(self, post: Tensor, pre: Tensor, prepared: Params) -> Tensor:
        return gamma(1) * abs(self.scale) * post.abs()

    @classmethod
    def examples(cls) -> list[Example]:
        return [Example(cls(), (5,)), Example(cls(-0.5), (3, 4))]


@dataclass(frozen=True)
class ReshapeCoupling(Coupling):
    """``F(s)``: the same numbers, dimensions ``start`` to ``end`` (the batch is 0) in ``shape``.

    By default all of a sample in a row, as ``nn.Flatten``.
    """

    shape: tuple[int, ...] = (-1,)
    start: int = 1
    end: int = -1
    linear: ClassVar[bool] = True
    rounds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.sizes("shape", self.shape, 1, "(16, 7, 7)", low=-1)
        checks.whole_number("end", self.end, -(2**31))
        if checks.whole_number("start", self.start, -(2**31)) == 0:
            raise InvalidInputError("start must leave the batch, dimension 0, alone: use start=1.")

    def up(self, pre: Signal, prepared: Params, post: Signal | None) -> Signal:
        return pre.flatten(self.start, self.end).unflatten(self.start, self.shape)

    def down(self, post: Signal, pre: Signal, prepared: Params) -> Signal:
        return post.reshape(pre.shape)

    def norm(self, params: Params, shape: tuple[int, ...]) -> float:
        return 1.0

    def up_rounding(self, pre: Tensor, prepared: Params) -> Tensor:
        return torch.zeros_like(self.up(pre, prepared, None))

    def down_rounding(self, post: Tensor, pre: Tensor, prepared: Params) -> Tensor:
        return torch.zeros_like(pre)

    @classmethod
    def examples(cls) -> list[Example]:
        return [Example(cls(), (3, 2, 2)), Example(cls((2, 3), 1, 1), (6, 2))]
