"""A local alternative to weights behind a spectral ball: project them after the step."""

from __future__ import annotations

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.errors import InvalidInputError
from toreqprop.models.constrained import weight_and_bias
from toreqprop.models.hopfield_mlp import HopfieldMLP
from toreqprop.models.looped_mlp import LoopedMLP


@torch.no_grad()
def project_(model: LoopedMLP | HopfieldMLP, radius: float) -> float:
    """Scale the couplings between neurons until the network contracts by ``radius``; in place.

    Call it after every optimizer step of a model built with ``spectral_norm=False``. The gradient
    of every weight is then made of the activities at its two ends alone, while behind a ball it has
    a term with the largest singular vectors, which depend on all weights; what is shared is one
    factor, ``min(1, radius / lipschitz())``, which is returned.

    Raises:
        InvalidInputError: the model keeps its couplings behind a ball already, or has none.
    """
    if not isinstance(model, LoopedMLP | HopfieldMLP):
        raise InvalidInputError(
            f"model must be a LoopedMLP or a HopfieldMLP, got {checks.shown(model)}."
        )
    radius = checks.number("radius", radius, 0, above=True, typical="0.1 to 0.95")
    if model.spectral_norm:
        raise InvalidInputError(
            "This model keeps its norm by itself: build it with spectral_norm=False to project it."
        )
    couplings: list[Tensor] = (
        [model.recurrent.raw]
        if isinstance(model, LoopedMLP)
        else [weight_and_bias(layer)[0] for layer in list(model.layers)[1:]]
    )
    factor = min(1.0, radius / max(model.lipschitz(), torch.finfo(torch.float64).tiny))
    if factor < 1:
        for coupling in couplings:
            coupling.mul_(factor)
    return factor
