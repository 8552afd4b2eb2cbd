"""The baseline: an ordinary feed-forward network trained by backpropagation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from toreqprop import checks
from toreqprop.models.base import check_batch
from toreqprop.models.readout import check_gain, read_out
from toreqprop.private_generator import drawing_from


class BackpropMLP(nn.Module):
    """Two hidden tanh layers of equal size: as many weights as a `LoopedMLP` and one bias more.

    ``gain`` multiplies the output, and ``generator`` draws the initial weights, as they do in a
    `LoopedMLP`.

    Shapes: input (batch, in_features), output (batch, out_features).
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int,
        *,
        gain: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        in_features = checks.whole_number("in_features", in_features, 1)
        hidden_features = checks.whole_number("hidden_features", hidden_features, 1)
        out_features = checks.whole_number("out_features", out_features, 1)
        self.in_features = in_features
        self.hidden_features = hidden_features
        self.out_features = out_features
        self.gain = check_gain(gain)
        with drawing_from(generator):
            self.layers = nn.Sequential(
                nn.Linear(in_features, hidden_features),
                nn.Tanh(),
                nn.Linear(hidden_features, hidden_features),
                nn.Tanh(),
                nn.Linear(hidden_features, out_features),
            )

    def forward(self, x: Tensor) -> Tensor:
        check_batch(x, self.in_features, next(self.parameters()).dtype)
        return read_out(self.layers, x, self.gain)

    def config(self) -> dict[str, Any]:
        """Constructor arguments that build this model again, weights apart."""
        return {
            "in_features": self.in_features,
            "hidden_features": self.hidden_features,
            "out_features": self.out_features,
            "gain": self.gain,
        }
