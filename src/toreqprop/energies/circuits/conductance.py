"""Conductances that stay in a range, as a constraint on the tensor an optimizer moves."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from toreqprop.errors import InvalidInputError


class ConductanceRange(nn.Module):
    """``raw ↦ unit·clip(raw, low, high)`` siemens: never negative, as no resistor is.

    Beyond the range the gradient passes where it leads back and is zero where it leads further
    away, so that a conductance at the edge can return: projected gradient descent.
    """

    def __init__(self, unit: float, low: float, high: float) -> None:
        super().__init__()
        if not 0 < unit < float("inf"):
            raise InvalidInputError(f"unit must be a conductance > 0 S, got {unit}. Typical: 1e-5.")
        if not 0 < low < high:
            raise InvalidInputError(
                f"the range of conductances must be 0 < low < high, got {low} and {high}: a node "
                "without any conductance would float."
            )
        self.unit, self.low, self.high = unit, low, high

    def forward(self, raw: Tensor) -> Tensor:
        return self.unit * _Clipped.apply(raw, self.low, self.high)

    def extra_repr(self) -> str:
        return f"unit={self.unit}, low={self.low}, high={self.high}"


class _Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, raw: Tensor, low: float, high: float) -> Tensor:
        ctx.save_for_backward(raw)
        ctx.range = (low, high)
        return raw.clamp(low, high)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (raw,) = ctx.saved_tensors
        low, high = ctx.range
        outside = torch.where(raw <= low, gradient.clamp(max=0), gradient)
        return torch.where(raw >= high, outside.clamp(min=0), outside), None, None
