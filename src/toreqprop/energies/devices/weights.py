"""How a weight is stored: on a continuum, on a grid, or with a sign alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.energies.devices.converter import MOST_BITS, on_grid
from toreqprop.errors import InvalidInputError


class Store(ABC):
    """What becomes of a matrix of weights when it is stored; the scale is one for each matrix."""

    @abstractmethod
    def __call__(self, weight: Tensor) -> Tensor:
        """The stored weights, without a graph."""

    def bound(self, weight: Tensor) -> Tensor:
        """The largest weight that can be stored, a scalar tensor: where stuck devices may be."""
        return self(weight).abs().max()


@dataclass(frozen=True)
class Analog(Store):
    """``clip(w, ±limit)``: any value in a limited range; None is no limit."""

    limit: float | None = None

    def __post_init__(self) -> None:
        if self.limit is not None:
            checks.number("limit", self.limit, 0, above=True, typical="1")

    def __call__(self, weight: Tensor) -> Tensor:
        return weight if self.limit is None else weight.clamp(-self.limit, self.limit)

    def bound(self, weight: Tensor) -> Tensor:
        return weight.abs().max() if self.limit is None else weight.new_tensor(self.limit)


@dataclass(frozen=True)
class Quantised(Store):
    """The nearest of ``2^bits − 1`` values, evenly spaced from −limit to limit, zero among them.

    Attributes:
        bits: of a weight; one bit is a sign.
        limit: the largest weight; None is a scale of each matrix's own, which follows it in
            training (one digital factor per crossbar).
        clip: that scale, in units of the matrix's root mean square: ``limit = clip·√mean(w²)``.
            None is its largest weight, ``max|w|``, which leaves few values to most weights where
            bits are few.
    """

    bits: int = 8
    limit: float | None = None
    clip: float | None = None

    def __post_init__(self) -> None:
        checks.whole_number("bits", self.bits, 1, MOST_BITS)
        for name in ("limit", "clip"):
            if getattr(self, name) is not None:
                checks.number(name, getattr(self, name), 0, above=True, typical="1")
        if self.limit is not None and self.clip is not None:
            raise InvalidInputError("limit and clip both say what the largest weight is: give one.")

    def bound(self, weight: Tensor) -> Tensor:
        if self.limit is not None:
            return weight.new_tensor(self.limit)
        size = weight.abs().max()
        if self.clip is not None:
            size = self.clip * weight.square().mean().sqrt()
        return size.clamp_min(torch.finfo(weight.dtype).tiny)

    def __call__(self, weight: Tensor) -> Tensor:
        return on_grid(weight, self.bound(weight), self.bits)


@dataclass(frozen=True)
class Ternary(Store):
    """``α·sign(w)`` where ``|w| > threshold·mean|w|``, else 0; α is the mean of those ``|w|``.

    The rule of ternary weight networks (Li, Zhang and Liu 2016, arXiv 1605.04711), which is nearly
    the ternary matrix closest to w.
    """

    threshold: float = 0.7

    def __post_init__(self) -> None:
        checks.number("threshold", self.threshold, 0, typical="0.7")

    def __call__(self, weight: Tensor) -> Tensor:
        size = weight.abs()
        kept = size > self.threshold * size.mean()
        scale = (size * kept).sum() / kept.sum().clamp_min(1)
        return torch.where(kept, scale * weight.sign(), torch.zeros_like(weight))


@dataclass(frozen=True)
class Binary(Store):
    """``mean|w|·sign(w)``: the binary matrix closest to w (Rastegari et al. 2016, 1603.05279)."""

    def __call__(self, weight: Tensor) -> Tensor:
        return torch.where(weight >= 0, 1.0, -1.0).to(weight) * weight.abs().mean()


STORES: dict[str, type[Store]] = {
    "analog": Analog,
    "quantised": Quantised,
    "ternary": Ternary,
    "binary": Binary,
}
"""By the name in a file that describes a device."""
