"""Poolings of a convolution's output, each with the local derivative that feedback needs.

Windows do not overlap; rows and columns that do not fill one are dropped.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.errors import InvalidInputError


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
    def pool(self, fine: Tensor) -> Tensor:
        """``P(v)``."""

    @abstractmethod
    def spread(self, coarse: Tensor, fine: Tensor) -> Tensor:
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

    def pool(self, fine: Tensor) -> Tensor:
        return windows(fine, self.size).mean((3, 5))

    def spread(self, coarse: Tensor, fine: Tensor) -> Tensor:
        share = coarse[:, :, :, None, :, None] / self.size**2
        whole = share.expand(-1, -1, -1, self.size, -1, self.size)
        return fill(whole, fine)

    def fold(self, kernel: Tensor) -> Tensor:
        reach = self.size - 1
        shifts = [
            F.pad(kernel, (j, reach - j, i, reach - i))
            for i in range(self.size)
            for j in range(self.size)
        ]
        return torch.stack(shifts).mean(0)

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

    def pool(self, fine: Tensor) -> Tensor:
        return F.max_pool2d(fine, self.size)

    def spread(self, coarse: Tensor, fine: Tensor) -> Tensor:
        _, winners = F.max_pool2d(fine, self.size, return_indices=True)
        return F.max_unpool2d(coarse, winners, [self.size] * 2, output_size=list(fine.shape[-2:]))


@dataclass(frozen=True)
class SoftPooling(Pooling):
    """``T·log mean exp(v/T)`` of each window: the maximum for T → 0, the mean for T → ∞.

    Its derivative is the softmax of the window: feedback is shared out among the leaders.
    """

    size: int = 2
    temperature: float = 0.1

    def __post_init__(self) -> None:
        check_size(self.size)
        if not 0 < self.temperature < math.inf:
            raise InvalidInputError(
                f"temperature must be > 0, got {self.temperature}. Typical: 0.1 to 1."
            )

    @property
    def gain(self) -> float:
        return 1.0

    @property
    def curvature(self) -> float:
        # The Hessian (diag p − ppᵀ)/T of a window has norm at most 1/(2T) (Popoviciu).
        return 0.5 / self.temperature

    def pool(self, fine: Tensor) -> Tensor:
        logits = windows(fine, self.size) / self.temperature
        return self.temperature * (logits.logsumexp((3, 5)) - 2 * math.log(self.size))

    def spread(self, coarse: Tensor, fine: Tensor) -> Tensor:
        logits = windows(fine, self.size) / self.temperature
        shares = (logits - logits.logsumexp((3, 5), keepdim=True)).exp()
        return fill(shares * coarse[:, :, :, None, :, None], fine)


POOLINGS: dict[str, type[Pooling]] = {
    "average": AveragePooling,
    "max": MaxPooling,
    "soft": SoftPooling,
}


def check_size(size: int) -> None:
    """Refuse a window that holds nothing."""
    if size < 1:
        raise InvalidInputError(f"size must be >= 1, got {size}. Typical: 2.")


def windows(fine: Tensor, size: int) -> Tensor:
    """A view (batch, channels, rows, size, columns, size) of the whole windows of a map."""
    rows, columns = fine.shape[-2] // size, fine.shape[-1] // size
    whole = fine[..., : rows * size, : columns * size]
    return whole.unflatten(-1, (columns, size)).unflatten(-3, (rows, size))


def fill(parts: Tensor, like: Tensor) -> Tensor:
    """The inverse of `windows`; what no window covers is zero."""
    whole = parts.flatten(4, 5).flatten(2, 3)
    missing = [like.shape[i] - whole.shape[i] for i in (-2, -1)]
    return whole if missing == [0, 0] else F.pad(whole, (0, missing[1], 0, missing[0]))
