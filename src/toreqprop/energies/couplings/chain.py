"""Several maps between two layers, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.energies.base import Gradients, Params, Wants
from toreqprop.energies.couplings.base import Coupling, Example
from toreqprop.energies.couplings.convolution import ConvolutionCoupling
from toreqprop.energies.couplings.linear import LinearCoupling, ReshapeCoupling
from toreqprop.energies.couplings.pooling import AveragePoolCoupling, MaxPoolCoupling
from toreqprop.energies.couplings.ways import ChainWays, Ways
from toreqprop.energies.pairs import Signal
from toreqprop.errors import UnsupportedModelError


@dataclass(frozen=True)
class ChainCoupling(Coupling):
    """``F = F_n ∘ … ∘ F_1``, without neurons between; params are those of the parts in turn.

    What comes down passes the transposed derivatives in the opposite order; each part's local rule
    sees what has come up to it and what has come down to it.
    """

    parts: tuple[Coupling, ...]

    def __post_init__(self) -> None:
        checks.members("parts", self.parts, Coupling, "(ReshapeCoupling(), LinearCoupling())")

    @property
    def count(self) -> int:  # type: ignore[override]
        return sum(part.count for part in self.parts)

    @property
    def analytic(self) -> bool:  # type: ignore[override]
        return all(part.analytic for part in self.parts)

    @property
    def linear(self) -> bool:  # type: ignore[override]
        return all(part.linear for part in self.parts)

    def _split(self, params: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        at = 0
        for part in self.parts:
            yield params[at : at + part.count]
            at += part.count

    def prepare(self, params: Params) -> Params:
        both = zip(self.parts, self._split(params), strict=True)
        return tuple(t for part, own in both for t in part.prepare(own))

    def up(self, pre: Signal, prepared: Params, post: Signal | None) -> Signal:
        for part, own in zip(self.parts, self._split(prepared), strict=True):
            pre = part.up(pre, own, None)
        return pre

    def _stations(self, pre: Signal, prepared: Params) -> list[Signal]:
        """What comes to each part from below."""
        found = [pre]
        for part, own in list(zip(self.parts, self._split(prepared), strict=True))[:-1]:
            found.append(part.up(found[-1], own, None))
        return found

    def down(self, post: Signal, pre: Signal, prepared: Params) -> Signal:
        stations = self._stations(pre, prepared)
        for part, below, own in reversed(
            list(zip(self.parts, stations, self._split(prepared), strict=True))
        ):
            post = part.down(post, below, own)
        return post

    def lift(self, move: Tensor, prepared: Params) -> Tensor:
        for part, own in zip(self.parts, self._split(prepared), strict=True):
            move = part.lift(move, own)
        return move

    def ways(self, prepared: Params, below: tuple[int, ...]) -> Ways | None:
        sample = prepared[0].new_zeros(1, *below) if prepared else torch.zeros(1, *below)
        found, shapes = [], []
        for part, own in zip(self.parts, self._split(prepared), strict=True):
            ways = part.ways(own, tuple(sample.shape[1:]))
            if ways is None:
                return None
            found.append(ways)
            shapes.append(tuple(sample.shape[1:]))
            sample = part.up(sample, own, None)
        return ChainWays(found, shapes)

    def gradients(
        self,
        post: Signal,
        pre: Signal,
        weight: Tensor,
        params: Params,
        prepared: Params,
        wants: Wants,
    ) -> Gradients:
        split = (list(self._split(t)) for t in (params, prepared, wants))
        stations = self._stations(pre, prepared)
        found: list[Gradients] = []
        everything = list(zip(self.parts, stations, *split, strict=True))
        for number, (part, below, own, ready, wanted) in reversed(list(enumerate(everything))):
            found.append(part.gradients(post, below, weight, own, ready, wanted))
            if any(any(asked) for *_, asked in everything[:number]):
                post = part.down(post, below, ready)
        return tuple(g for part in reversed(found) for g in part)

    def norm(self, params: Params, shape: tuple[int, ...]) -> float:
        """The product of the parts' norms."""
        total = 1.0
        for part, own in zip(self.parts, self._split(params), strict=True):
            total *= part.norm(own, shape)
            if part.curvature(own, shape):
                raise UnsupportedModelError(
                    f"No bound on the curvature of a chain with {type(part).__name__} is known."
                )
            if shape:
                below = torch.zeros(1, *shape, dtype=torch.float64)
                ready = part.prepare(tuple(p.detach().double().cpu() for p in own))
                shape = tuple(part.up(below, ready, None).shape[1:])
        return total

    @classmethod
    def examples(cls) -> list[Example]:
        depthwise = ConvolutionCoupling(padding=1, groups=2)
        return [
            Example(
                cls((AveragePoolCoupling((2, 2)), ReshapeCoupling(), LinearCoupling())),
                (2, 4, 5),
                ((3, 8), (3,)),
            ),
            Example(
                cls((ConvolutionCoupling(1), MaxPoolCoupling((2, 2)))),
                (2, 4, 5),
                ((3, 2, 3, 3), (3,)),
            ),
            Example(
                cls((depthwise, ConvolutionCoupling())),
                (2, 4, 3),
                ((2, 1, 3, 3), (2,), (3, 2, 1, 1), (3,)),
            ),
        ]


def chain(*parts: Coupling) -> Coupling:
    """The parts as one coupling; of one part, itself."""
    whole = ChainCoupling(parts)
    return parts[0] if len(parts) == 1 else whole
