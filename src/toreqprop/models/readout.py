"""A readout with a gain."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from toreqprop import checks


def check_gain(gain: float) -> float:
    """``gain`` where it is a factor."""
    return checks.number("gain", gain, 0, above=True, typical="1 to 30")


def read_out(layer: nn.Module, state: Tensor, gain: float) -> Tensor:
    """``gain (W s + c)``, shapes (batch, hidden) to (batch, outputs)."""
    output = layer(state)
    return output if gain == 1 else gain * output


class Readout(NamedTuple):
    """A readout ``gain·W s + lift·c`` of the top layer, W and c those of a linear layer."""

    layer: nn.Module
    gain: float
    lift: float
