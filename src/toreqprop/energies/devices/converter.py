"""Converters between analog states and digital numbers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from toreqprop import checks

MOST_BITS = 24
"""Beyond, float32 itself is coarser."""


@dataclass(frozen=True)
class Converter:
    """``q(s) = Δ·round(clip(s, ±limit)/Δ)`` with ``Δ = 2·limit/(2^bits − 2)``; zero is a value.

    One bit keeps the sign. The same convention as the resolution ``1/(2^bits − 2)`` of aihwkit's
    ``IOParameters`` (``inp_res = 1/126`` for 7 bits), whose bound is ``limit`` here.

    Attributes:
        bits: of every conversion.
        limit: states beyond it are clipped; those of tanh neurons are at most one.
    """

    bits: int = 8
    limit: float = 1.0

    def __post_init__(self) -> None:
        checks.whole_number("bits", self.bits, 1, MOST_BITS)
        checks.number("limit", self.limit, 0, above=True, typical="1")

    @property
    def step(self) -> float:
        """Δ, the distance of neighbouring values."""
        return 2 * self.limit / max(1, 2**self.bits - 2)

    def __call__(self, value: Tensor) -> Tensor:
        return on_grid(value, self.limit, self.bits)


def on_grid(value: Tensor, limit: Tensor | float, bits: int) -> Tensor:
    """The nearest of ``2^bits − 1`` values from −limit to limit; of two for one bit."""
    if bits == 1:
        return torch.where(value >= 0, 1.0, -1.0).to(value) * limit
    step = limit / (2 ** (bits - 1) - 1)
    bound = torch.as_tensor(limit, dtype=value.dtype, device=value.device)
    return torch.round(torch.clamp(value, -bound, bound) / step) * step
