"""Inputs of the shape a model takes, to trace and to check an exported network with."""

from __future__ import annotations

import torch
from torch import Tensor

from toreqprop.errors import UnsupportedModelError
from toreqprop.models import (
    EquilibriumModel,
    EquilibriumTransformer,
    HopfieldConvNet,
    HopfieldMLP,
    LoopedMLP,
    ResistiveMLP,
)


def random_inputs(model: EquilibriumModel, count: int) -> Tensor:
    """``count`` inputs, always the same.

    Raises:
        UnsupportedModelError: the model does not say which shape it takes.
    """
    generator = torch.Generator().manual_seed(0)
    if isinstance(model, EquilibriumTransformer):
        return torch.randint(model.vocab_size, (count, model.max_length), generator=generator)
    shape: tuple[int, ...]
    if isinstance(model, HopfieldConvNet):
        shape = tuple(model.plan.image)
    elif isinstance(model, HopfieldMLP | ResistiveMLP):
        shape = (model.sizes[0],)
    elif isinstance(model, LoopedMLP):
        shape = (model.in_features,)
    else:
        raise UnsupportedModelError(
            f"{type(model).__name__} takes inputs of any shape: export it in Python, with "
            "exporting.FreePhase(model, example)."
        )
    dtype = next(model.parameters()).dtype
    return torch.randn(count, *shape, generator=generator, dtype=dtype)
