"""Torch modules as plain data and back, so that a network made of them fits into a checkpoint.

``["Linear", {"in_features": 4, ...}]``; a sequential network is the list of its modules. Only the
classes in `KNOWN` are built, from their constructor's arguments: nothing is looked up by name
elsewhere.
"""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor, nn

from toreqprop.errors import InvalidInputError
from toreqprop.models.residual import Residual

KNOWN: dict[str, type[nn.Module]] = {
    cls.__name__: cls
    for cls in (
        *(nn.Linear, nn.Conv1d, nn.Conv2d, nn.Embedding, nn.Identity, nn.Flatten, nn.Unflatten),
        *(nn.AvgPool1d, nn.AvgPool2d, nn.MaxPool1d, nn.MaxPool2d),
        *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d),
        *(nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm, nn.GroupNorm),
        *(nn.Dropout, nn.Dropout1d, nn.Dropout2d),
        *(nn.Tanh, nn.Sigmoid, nn.ReLU, nn.ReLU6, nn.Hardtanh, nn.LeakyReLU, nn.Softplus),
        *(nn.GELU, nn.SiLU, Residual),
    )
}
"""Every class that a description may name."""

_LEFT_OUT = {"self", "device", "dtype", "min_value", "max_value", "_weight", "_freeze"}


def describe(module: nn.Module | None) -> Any:
    """Plain data that `build` makes a module of the same kind and sizes from, weights apart; the
    module itself where a part of it is not `KNOWN` or two parts share their weights."""
    if module is None:
        return None
    named = (len(list(module.named_parameters(remove_duplicate=d))) for d in (True, False))
    plain = _described(module) if len(set(named)) == 1 else None
    return module if plain is None else plain


def _described(module: nn.Module) -> list[Any] | None:
    if type(module) is nn.Sequential:
        found = [_described(child) for child in module]
        return None if None in found else found
    name = type(module).__name__
    if KNOWN.get(name) is not type(module):
        return None
    arguments = {}
    for argument in inspect.signature(type(module).__init__).parameters:
        if argument in _LEFT_OUT or not hasattr(module, argument):
            continue
        value = getattr(module, argument)
        if argument == "bias":
            value = value is not None
        elif isinstance(value, nn.Module):
            value = _described(value)
            if value is None:
                return None
        elif isinstance(value, tuple | list):
            value = list(value)
        elif isinstance(value, Tensor):
            return None
        arguments[argument] = value
    return [name, arguments]


def built(value: Any) -> Any:
    """What a description describes; anything else as it is."""
    return build(value) if isinstance(value, list | tuple) else value


def build(described: Any) -> nn.Module:
    """The module of a description.

    Raises:
        InvalidInputError: it describes none.
    """
    if not isinstance(described, list | tuple):
        raise InvalidInputError(
            f"A description of a network is a list of modules, got {type(described).__name__}."
        )
    if len(described) == 2 and isinstance(described[0], str) and isinstance(described[1], dict):
        name, arguments = described
        if name not in KNOWN:
            raise InvalidInputError(f"There is no module {name!r}; known: {', '.join(KNOWN)}.")
        made = {
            key: build(value) if KNOWN[name] is Residual and isinstance(value, list) else value
            for key, value in arguments.items()
        }
        try:
            return KNOWN[name](**made)
        except (TypeError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise InvalidInputError(f"{name} cannot be built from {made}: {reason}.") from None
    return nn.Sequential(*(build(item) for item in described))
