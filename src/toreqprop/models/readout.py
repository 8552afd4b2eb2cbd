"""A readout with a gain."""

from __future__ import annotations

import math

from torch import Tensor, nn

from toreqprop.errors import InvalidInputError


def check_gain(gain: float) -> None:
    """Refuse what is no factor."""
    if not (math.isfinite(gain) and gain > 0):
        raise InvalidInputError(f"gain must be > 0 and finite, got {gain}. Typical: 1 to 30.")


def read_out(layer: nn.Module, state: Tensor, gain: float) -> Tensor:
    """``gain (W s + c)``, shapes (batch, hidden) to (batch, outputs)."""
    output = layer(state)
    return output if gain == 1 else gain * output
