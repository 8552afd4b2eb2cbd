"""Poolings of a convolution's output, each with the local derivative that feedback needs.

Windows do not overlap; rows and columns that do not fill one are dropped.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop import checks
from toreqprop.energies.pairs import Pair, Signal, logsumexp_pair, softmax_pair


class Pooling(ABC):
    """``P``: one value for each ``size × size`` window of a map (batch, channels, height, width).

    ``gain`` bounds ``‖P'‖``; ``curvature`` is a c with ``‖⟨s, P⟩''‖ ≤ c`` wherever ``|s| ≤ 1``,
    None where the derivative jumps; ``analytic`` says that P extends to complex maps. A linear
    pooling is part of the kernel (`fold`), and the convolution takes steps of ``stride``.
    """

    size: int
    linear: ClassVar[bool] = False
    analytic: ClassVar[bool] = False

    @property
    @abstractmethod
    def gain(self) -> float: ...

    @property
    @abstractmethod
    def curvature(self) -> float | None: ...

    @abstractmethod
    def pool(self, fine: Signal) -> Signal:
        """``P(v)``."""

    @abstractmethod
    def spread(self, coarse: Signal, fine: Signal) -> Signal:
        """``P'(v)ᵀ·coarse``: a signal handed down to the map it was pooled from."""

    @property
    def stride(self) -> int:
        return self.size if self.linear else 1

    def fold(self, kernel: Tensor) -> Tensor:
        """The kernel with all of the pooling that is linear in it."""
        return kernel

    def unfold(self, gradient: Tensor) -> Tensor:
        """The transpose of `fold`: from the gradient of the folded kernel to the kernel's."""
        return gradient


@dataclass(frozen=True)
class AveragePooling(Pooling):
    """The mean of each window, folded into the kernel: ``k × k`` becomes ``(k+p−1) × (k+p−1)``
    with stride ``p``, the same map for fewer products."""

    size: int = 2
    linear: ClassVar[bool] = True
    analytic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_size(self.size)

    @property
    def gain(self) -> float:
        return 1 / self.size

    @property
    def curvature(self) -> float:
        return 0.0

    def pool(self, fine: Signal) -> Signal:
        return windows(fine, self.size).mean((3, 5))

    def spread(self, coarse: Signal, fine: Signal) -> Signal:
        def shared(t: Tensor) -> Tensor:
            share = t[:, :, :, None, :, None] / self.size**2
            return fill(share.expand(-1, -1, -1, self.size, -1, self.size), fine.shape)

        return coarse.map(shared) if isinstance(coarse, Pair) else shared(coarse)

    def fold(self, kernel: Tensor) -> Tensor:
        reach = self.size - 1
        framed = F.pad(kernel, (reach,) * 4)
        high, wide = kernel.shape[-2] + reach, kernel.shape[-1] + reach
        found = framed[..., :high, :wide] / self.size**2
        for at in range(1, self.size**2):
            y, x = divmod(at, self.size)
            found = found.add(framed[..., y : y + high, x : x + wide], alpha=1 / self.size**2)
        return found

    def unfold(self, gradient: Tensor) -> Tensor:
        return F.avg_pool2d(gradient, self.size, stride=1)


@dataclass(frozen=True)
class MaxPooling(Pooling):
    """The largest value of each window; feedback goes to the one that won."""

    size: int = 2

    def __post_init__(self) -> None:
        check_size(self.size)

    @property
    def gain(self) -> float:
        return 1.0

    @property
    def curvature(self) -> None:
        return None

    def pool(self, fine: Signal) -> Signal:
        return max_pool(fine, (self.size,) * 2, (self.size,) * 2, (0, 0))

    def spread(self, coarse: Signal, fine: Signal) -> Signal:
        return max_spread(coarse, fine, (self.size,) * 2, (self.size,) * 2, (0, 0))


@dataclass(frozen=True)
class SoftPooling(Pooling):
    """``T·log mean exp(v/T)`` of each window: the maximum for T → 0, the mean for T → ∞.

    Its derivative is the softmax of the window: feedback is shared out among the leaders.
    """

    size: int = 2
    temperature: float = 0.1

    def __post_init__(self) -> None:
        check_size(self.size)
        checks.number("temperature", self.temperature, 0, above=True, typical="0.1 to 1")

    @property
    def gain(self) -> float:
        return 1.0

    @property
    def curvature(self) -> float:
        # The Hessian (diag p − ppᵀ)/T of a window has norm at most 1/(2T) (Popoviciu).
        return 0.5 / self.temperature

    def pool(self, fine: Signal) -> Signal:
        logits = windows(fine, self.size) / self.temperature
        if not isinstance(logits, Pair):
            return self.temperature * (logits.logsumexp((3, 5)) - 2 * math.log(self.size))
        value, shares = logits.center.logsumexp((3, 5)), _shares(logits.center)
        found = logsumexp_pair(value, shares, logits.shift, (3, 5))
        return self.temperature * (found - 2 * math.log(self.size))

    def spread(self, coarse: Signal, fine: Signal) -> Signal:
        logits = windows(fine, self.size) / self.temperature
        parts: Signal
        if isinstance(logits, Pair):
            parts = softmax_pair(_shares(logits.center), logits.shift, (3, 5))
        else:
            parts = _shares(logits)
        found = parts * coarse[:, :, :, None, :, None]
        if isinstance(found, Pair):
            return found.map(lambda t: fill(t, fine.shape))
        return fill(found, fine.shape)


def _shares(logits: Tensor) -> Tensor:
    return (logits - logits.logsumexp((3, 5), keepdim=True)).exp()


JUMPS = (
    "Under max pooling the fixed-point map jumps where another pixel wins, so it has "
    "no Lipschitz constant: use AveragePooling() or SoftPooling() above the first."
)
"""Why max pooling has no norm."""

Sides = tuple[int, ...]
"""One number for each dimension that is pooled, the last one or two."""


def max_pool(fine: Signal, size: Sides, stride: Sides, padding: Sides) -> Signal:
    """The largest value of each window."""
    if not isinstance(fine, Pair):
        return _MAX[len(size)](fine, size, stride, padding)
    up, down = (_winners(phase, size, stride, padding) for phase in (fine.up, fine.down))
    first, second = fine.map(lambda t: _at(t, up)), fine.map(lambda t: _at(t, down))
    # Where one pixel wins in both phases its center cancels exactly, and its shift is left.
    return _phases(first, second)


def max_spread(coarse: Signal, fine: Signal, size: Sides, stride: Sides, padding: Sides) -> Signal:
    """What is handed down to the pixel that won, added up where windows overlap."""

    def handed_down(signal: Signal, winners: Tensor) -> Signal:
        if isinstance(signal, Pair):
            return signal.map(lambda t: handed_down(t, winners))
        empty = signal.new_zeros(fine.shape).flatten(2)
        return empty.scatter_add(2, winners.flatten(2), signal.flatten(2)).reshape(fine.shape)

    if not isinstance(fine, Pair):
        winners = _winners(fine, size, stride, padding)
        if isinstance(coarse, Pair) or coarse.is_complex() or len(size) != 2:
            return handed_down(coarse, winners)
        return torch.ops.aten.max_pool2d_with_indices_backward(
            coarse, fine, size, stride, padding, (1, 1), False, winners
        )
    if not isinstance(coarse, Pair):
        raise AssertionError("both ends of a coupling are pairs")
    first, second = (_winners(phase, size, stride, padding) for phase in (fine.up, fine.down))
    one = handed_down(coarse, first)
    if torch.equal(first, second):
        return one
    return _phases(one, handed_down(coarse, second))


def _winners(fine: Tensor, size: Sides, stride: Sides, padding: Sides) -> Tensor:
    return _MAX[len(size)](fine, size, stride, padding, return_indices=True)[1]


def _at(fine: Tensor, winners: Tensor) -> Tensor:
    """A map at these positions, numbered through each channel."""
    return fine.flatten(2).gather(2, winners.flatten(2)).reshape(winners.shape)


def _phases(first: Pair, second: Pair) -> Pair:
    """The upper phase of one pair and the lower phase of another, as a pair."""
    return Pair(
        0.5 * (first.center + second.center) + 0.5 * (first.shift - second.shift),
        0.5 * (first.center - second.center) + 0.5 * (first.shift + second.shift),
    )


_MAX: dict[int, Callable[..., Any]] = {1: F.max_pool1d, 2: F.max_pool2d}


POOLINGS: dict[str, type[Pooling]] = {
    "average": AveragePooling,
    "max": MaxPooling,
    "soft": SoftPooling,
}


def check_size(size: int) -> None:
    """Refuse a window that holds nothing."""
    checks.whole_number("size", size, 1)


def windows(fine: Signal, size: int) -> Signal:
    """A view (batch, channels, rows, size, columns, size) of the whole windows of a map."""
    rows, columns = fine.shape[-2] // size, fine.shape[-1] // size
    whole = fine[..., : rows * size, : columns * size]
    return whole.unflatten(-1, (columns, size)).unflatten(-3, (rows, size))


def fill(parts: Tensor, shape: torch.Size) -> Tensor:
    """The inverse of `windows` for a map of this shape; what no window covers is zero."""
    whole = parts.flatten(4, 5).flatten(2, 3)
    missing = [shape[i] - whole.shape[i] for i in (-2, -1)]
    return whole if missing == [0, 0] else F.pad(whole, (0, missing[1], 0, missing[0]))
