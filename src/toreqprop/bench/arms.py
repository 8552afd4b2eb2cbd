"""What the arms of a row need: feed-forward rivals, certificates as plain data, the network cut."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from toreqprop import checks
from toreqprop.certificate import MAX_NORM_ERROR, MIN_COSINE, certify
from toreqprop.models import EquilibriumModel
from toreqprop.models.base import check_batch
from toreqprop.models.readout import check_gain, read_out


class FeedForward(nn.Module):
    """Hidden tanh layers of equal size for backpropagation, read out like a `LoopedMLP`.

    Shapes: input (batch, in_features), output (batch, out_features).
    """

    def __init__(
        self, in_features: int, hidden: int, out_features: int, *, layers: int, gain: float = 1.0
    ) -> None:
        super().__init__()
        checks.whole_number("layers", layers, 1)
        self.in_features = in_features
        self.gain = check_gain(gain)
        parts: list[nn.Module] = []
        for below in [in_features, *[hidden] * (layers - 1)]:
            parts += [nn.Linear(below, hidden), nn.Tanh()]
        self.layers = nn.Sequential(*parts, nn.Linear(hidden, out_features))

    def forward(self, x: Tensor) -> Tensor:
        check_batch(x, self.in_features, next(self.parameters()).dtype)
        return read_out(self.layers, x, self.gain)


def certificate(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    min_cosine: float = MIN_COSINE,
    max_norm_error: float = MAX_NORM_ERROR,
) -> dict[str, Any]:
    """The certificate of a model's own gradient on a batch: verdict, and extremes over tensors."""
    if not isinstance(model, EquilibriumModel):
        raise AssertionError("only equilibrium networks have certificates")
    found = certify(model, x, y, min_cosine=min_cosine, max_norm_error=max_norm_error)
    ratios = [tensor.norm_ratio for tensor in found.tensors]
    backprop = found.backprop_cosine
    return {
        "ok": found.ok,
        "cosine": found.min_cosine,
        "least_ratio": min(ratios),
        "largest_ratio": max(ratios),
        "reasons": [reason.name for reason in found.reasons],
        "backprop_cosine": backprop if backprop is None or math.isfinite(backprop) else None,
    }


@torch.no_grad()
def ablated(model: EquilibriumModel, x: Tensor) -> Tensor:
    """The classes a network predicts in one pass: its recurrence and feedback cut after training.

    For a looped network that is ``W_rec = 0``: its pass is ``tanh(W_in x + b)``.
    """
    params = model.system_parameters()
    drive = model.field.prepare(model.field_input(x), params)
    return model.readout_from(model.field.initial_state(drive, params)).argmax(-1)
