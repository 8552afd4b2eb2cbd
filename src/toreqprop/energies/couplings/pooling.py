"""Poolings on their own, of sequences (batch, channels, length) and of maps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop import checks
from toreqprop.energies.base import Params
from toreqprop.energies.couplings.base import Coupling, Example
from toreqprop.energies.couplings.ways import MaxWays, Ways
from toreqprop.energies.pairs import Pair, Signal
from toreqprop.energies.pooling import JUMPS, max_pool, max_spread
from toreqprop.errors import InvalidInputError, UnsupportedModelError

_AVERAGE: dict[int, Callable[..., Tensor]] = {1: F.avg_pool1d, 2: F.avg_pool2d}
_SPREAD: dict[int, Callable[..., Tensor]] = {1: F.conv_transpose1d, 2: F.conv_transpose2d}


@dataclass(frozen=True)
class AveragePoolCoupling(Coupling):
    """``F(s)``: the mean of every window; zeros of the padding count.

    ``size``, ``stride`` (by default the size) and ``padding`` have one entry for each dimension
    that is pooled, the last one or two.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    linear: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check(self)

    def up(self, pre: Signal, prepared: Params, post: Signal | None) -> Signal:
        return _linearly(pre, self._pool)

    def down(self, post: Signal, pre: Signal, prepared: Params) -> Signal:
        return _linearly(post, lambda t: self._share(t, pre.shape))

    def _pool(self, fine: Tensor) -> Tensor:
        return _AVERAGE[len(self.size)](fine, self.size, self.stride, self.padding)

    def _share(self, coarse: Tensor, shape: torch.Size) -> Tensor:
        """Every pixel of a window gets its share: a transposed convolution, channel by channel."""
        geometry = zip(shape[2:], self.padding, self.size, self.stride, strict=True)
        left = [(pixels + 2 * pad - side) % step for pixels, pad, side, step in geometry]
        share = coarse.new_full((1, 1, *self.size), 1 / math.prod(self.size))
        flat = coarse.flatten(0, 1).unsqueeze(1)
        spread = _SPREAD[len(self.size)](flat, share, None, self.stride, self.padding, left)
        return spread.reshape(shape)

    def norm(self, params: Params, shape: tuple[int, ...]) -> float:
        """``√(‖F‖₁·‖F‖_∞)``: a pixel is in at most ``⌈size/stride⌉`` windows along a dimension."""
        both = zip(self.size, self.stride, strict=True)
        windows = math.prod(-(-side // step) for side, step in both)
        return (windows / math.prod(self.size)) ** 0.5

    @classmethod
    def examples(cls) -> list[Example]:
        return [
            Example(cls((2, 2)), (2, 5, 4)),
            Example(cls((3, 2), (2, 1), (1, 0)), (2, 5, 4)),
            Example(cls((3,)), (2, 7)),
        ]


@dataclass(frozen=True)
class MeanCoupling(Coupling):
    """``F(s)``: the mean over all of the last ``dimensions``, which are kept with size one."""

    dimensions: int = 2
    linear: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.whole_number("dimensions", self.dimensions, 1)

    def up(self, pre: Signal, prepared: Params, post: Signal | None) -> Signal:
        return pre.mean(tuple(range(-self.dimensions, 0)), keepdim=True)

    def down(self, post: Signal, pre: Signal, prepared: Params) -> Signal:
        pixels = math.prod(pre.shape[-self.dimensions :])
        return _linearly(post, lambda t: (t / pixels).expand(pre.shape))

    def norm(self, params: Params, shape: tuple[int, ...]) -> float:
        return math.prod(shape[-self.dimensions :]) ** -0.5 if shape else 1.0

    @classmethod
    def examples(cls) -> list[Example]:
        return [Example(cls(2), (3, 4, 2)), Example(cls(1), (3, 5))]


@dataclass(frozen=True)
class MaxPoolCoupling(Coupling):
    """``F(s)``: the largest value of every window; what comes down goes to the one that won.

    Φ is convex in the lower layer, so that sweeps descend, where the upper states are not negative.
    ``size``, ``stride`` and ``padding`` as in `AveragePoolCoupling`.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    analytic: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check(self)

    def up(self, pre: Signal, prepared: Params, post: Signal | None) -> Signal:
        return max_pool(pre, self.size, self.stride, self.padding)

    def down(self, post: Signal, pre: Signal, prepared: Params) -> Signal:
        return max_spread(post, pre, self.size, self.stride, self.padding)

    def ways(self, prepared: Params, below: tuple[int, ...]) -> Ways | None:
        if len(self.size) != 2:
            return None
        return MaxWays(*((side[0], side[1]) for side in (self.size, self.stride, self.padding)))

    def norm(self, params: Params, shape: tuple[int, ...]) -> float:
        raise UnsupportedModelError(JUMPS)

    @classmethod
    def examples(cls) -> list[Example]:
        return [
            Example(cls((2, 2)), (2, 5, 4)),
            Example(cls((3, 3), (2, 2), (1, 1)), (2, 5, 4)),
            Example(cls((3,)), (2, 7)),
        ]


def _check(pooling: Any) -> None:
    """Fill in what follows from the size, and refuse windows that pool nothing."""
    size = checks.sizes("size", pooling.size, 1, "(2, 2)", most=2)
    stride = checks.sizes("stride", pooling.stride, 0, "(2, 2)") or size
    padding = checks.sizes("padding", pooling.padding, 0, "(1, 1)", low=0) or (0,) * len(size)
    if not len(size) == len(stride) == len(padding):
        raise InvalidInputError(
            f"stride and padding need an entry for each of size={size}, got stride={stride}, "
            f"padding={padding}."
        )
    object.__setattr__(pooling, "size", size)
    object.__setattr__(pooling, "stride", stride)
    object.__setattr__(pooling, "padding", padding)


def _linearly(signal: Signal, function: Callable[[Tensor], Tensor]) -> Signal:
    """A real linear map of one signal or a pair, real or complex."""
    if isinstance(signal, Pair):
        return signal.map(lambda t: _linearly(t, function))
    if signal.is_complex():
        return torch.complex(function(signal.real), function(signal.imag))
    return function(signal)
