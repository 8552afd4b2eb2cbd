"""Arguments looked at once, at the public boundary; each refusal is a sentence with a remedy."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import cache
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from toreqprop.errors import InvalidInputError

if TYPE_CHECKING:
    from torch import Tensor, nn


Kind = TypeVar("Kind")


def whole_number(name: str, value: Any, low: int, high: int | None = None) -> int:
    """``value`` as an int of at least ``low``, and at most ``high`` where there is one."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise InvalidInputError(f"{name} must be a whole number >= {low}, got {shown(value)}.")
    found = int(value)
    if found < low or (high is not None and found > high):
        upper = "" if high is None else f" and <= {high}"
        raise InvalidInputError(f"{name} must be >= {low}{upper}, got {found}.")
    return found


def number(
    name: str, value: Any, low: float = -math.inf, *, above: bool = False, typical: str = ""
) -> float:
    """``value`` as a finite float of at least ``low``, or ``above`` it."""
    if type(value) is float and low < value < math.inf:  # what is checked at every step
        return value
    relation = f">{'' if above else '='} {low:g}" if low > -math.inf else "finite"
    hint = f" Typical: {typical}." if typical else ""
    fits = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not fits or value < low or (above and value == low):
        raise InvalidInputError(f"{name} must be {relation}, got {shown(value)}.{hint}")
    return float(value)


def between(name: str, value: Any, low: float, high: float, *, typical: str = "") -> float:
    """``value`` as a float above ``low`` and at most ``high``."""
    plain = isinstance(value, Real) and not isinstance(value, bool)
    fits = plain and low < value <= high
    if not fits:
        hint = f" Typical: {typical}." if typical else ""
        raise InvalidInputError(f"{name} must be in ({low:g}, {high:g}], got {shown(value)}.{hint}")
    return float(value)


def flag(name: str, value: Any) -> None:
    """Refuse anything but True and False."""
    if not isinstance(value, bool):
        raise InvalidInputError(f"{name} must be True or False, got {shown(value)}.")


def sizes(
    name: str, value: Any, least: int, example: str, *, low: int = 1, most: int | None = None
) -> tuple[int, ...]:
    """``value`` as a tuple of at least so many whole numbers, all ``low`` or more."""
    fits = isinstance(value, Sequence) and not isinstance(value, str) and len(value) >= least
    if not fits or not all(
        isinstance(v, Integral) and not isinstance(v, bool) and int(v) >= low for v in value
    ):
        raise InvalidInputError(
            f"{name} must be {least} or more whole numbers >= {low}, such as {example}; got "
            f"{shown(value)}."
        )
    if most is not None and len(value) > most:
        raise InvalidInputError(
            f"{name} must have at most {most} entries, such as {example}; got {shown(value)}."
        )
    return tuple(int(v) for v in value)


def choice(name: str, value: Any, known: Sequence[str]) -> str:
    """``value`` where it is one of the known names."""
    if not isinstance(value, str) or value not in known:
        options = " or ".join(f'"{each}"' for each in known)
        raise InvalidInputError(f"{name} must be {options}, got {shown(value)}.")
    return value


@cache
def _tensor_class() -> type[Tensor]:
    """Imported when it is first asked for: help and completion do without torch."""
    from torch import Tensor

    return Tensor


def tensor(name: str, value: Any, least_dimensions: int = 1) -> Tensor:
    """``value`` where it is a tensor with that many dimensions or more."""
    if not isinstance(value, _tensor_class()):
        raise InvalidInputError(
            f"{name} must be a tensor, got {type(value).__name__}: use torch.as_tensor({name})."
        )
    if value.dim() < least_dimensions:
        raise InvalidInputError(
            f"{name} must have {least_dimensions} dimension(s) or more, got shape "
            f"{tuple(value.shape)}: its first one counts samples."
        )
    return value


def weights(name: str, value: Any, dimensions: int) -> Tensor:
    """``value`` where it is a floating-point tensor of so many dimensions, none of them empty."""
    tensor(name, value, 0)
    if value.dim() != dimensions or not value.is_floating_point() or not value.numel():
        raise InvalidInputError(
            f"{name} must be a floating-point tensor with {dimensions} dimensions and no empty "
            f"one, got {tuple(value.shape)} of {value.dtype}."
        )
    return value


def tensors(name: str, value: Any, count: int | None = None, *, least: int = 1) -> None:
    """Refuse what is no tuple of so many tensors, or of ``least`` or more."""
    fits, kind = isinstance(value, (tuple, list)), _tensor_class()
    for each in value if fits else ():
        fits = fits and isinstance(each, kind)
    if not fits or (len(value) < least if count is None else len(value) != count):
        wanted = f"{least} or more" if count is None else f"{count}"
        raise InvalidInputError(
            f"{name} must be a tuple of {wanted} tensors, got {shown(value)}: write (t,) for one."
        )


def members(name: str, value: Any, kind: type, example: str, *, least: int = 0) -> None:
    """Refuse what is no tuple of ``least`` or more objects of a class."""
    fits = isinstance(value, (tuple, list))
    for each in value if fits else ():
        fits = fits and isinstance(each, kind)
    if not fits or len(value) < least:
        raise InvalidInputError(
            f"{name} must hold {least} or more objects of {kind.__name__}, such as {example}; got "
            f"{shown(value)}."
        )


def pairs(x: Any, y: Any, names: tuple[str, str] = ("x", "y")) -> None:
    """Two tensors with as many samples each, and at least one."""
    tensor(names[0], x)
    tensor(names[1], y)
    if len(x) != len(y):
        raise InvalidInputError(
            f"{names[0]} has {len(x)} samples and {names[1]} has {len(y)}: give one target for "
            "each sample."
        )


def module(name: str, value: Any) -> nn.Module:
    """``value`` where it is a model."""
    from torch import nn

    if not isinstance(value, nn.Module):
        raise InvalidInputError(
            f"{name} must be a model (torch.nn.Module), got {shown(value)}: build it first."
        )
    return value


def function(name: str, value: Any, *, optional: bool = False) -> None:
    """Refuse what cannot be called; None is fine where it is optional."""
    if not callable(value) and not (optional and value is None):
        raise InvalidInputError(f"{name} must be a function, got {shown(value)}.")


def path(name: str, value: Any) -> Path:
    """``value`` as a path, from a path or a text that is not empty."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise InvalidInputError(f"{name} must be a path, got {shown(value)}.")
    found = os.fspath(value)
    if not isinstance(found, str) or "\0" in found:
        raise InvalidInputError(f"{name} must be a path in text, got {shown(value)}.")
    return Path(found)


def instance(name: str, value: Any, kind: type, remedy: str, *, optional: bool = False) -> None:
    """Refuse an object of another class; None is fine where it is optional."""
    if value is None and optional:
        return
    if not isinstance(value, kind):
        raise InvalidInputError(f"{name} must be a {kind.__name__}, got {shown(value)}: {remedy}.")


def scalar_loss(value: Any) -> Tensor:
    """What a loss returned, where it is one number that gradients can flow from."""
    from torch import Tensor

    if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
        raise InvalidInputError(
            f"The loss must return one number computed from the outputs, got {shown(value)}: "
            "average over the samples."
        )
    return value


def generator(name: str, value: Any, *, optional: bool = False) -> None:
    """Refuse what draws no random numbers; None is fine where it is optional."""
    import torch

    remedy = "use torch.Generator().manual_seed(0)"
    instance(name, value, torch.Generator, remedy, optional=optional)


def unchecked(kind: type[Kind], **fields: Any) -> Kind:
    """An object of a frozen dataclass whose fields were looked at before, without doing so again.

    At every training step half a dozen are made; their checks and their ``__init__`` would take as
    long as the products of a small network.
    """
    made = object.__new__(kind)
    made.__dict__.update(fields)
    return made


def shown(value: Any) -> str:
    """What was given, in at most one short line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{type(value).__name__} {text[:40]}..."
