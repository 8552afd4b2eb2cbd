"""Builds a model from a description that is not trusted: within limits, and off the global seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.overrides import TorchFunctionMode

from toreqprop.errors import InvalidInputError
from toreqprop.private_generator import drawing_from

T = TypeVar("T")

_FACTORIES = (torch.empty, torch.zeros, torch.ones, torch.randn, torch.rand, torch.eye, torch.full)
CALLS_PER_TENSOR = 500
"""Operations that initialising one tensor may take, with room to spare."""
_ROOM = 2**20
"""Elements that tables and the like may have in any model."""
_FACTOR = 4
"""How much larger than the largest tensor what its initialisation computes may be."""


class TooLargeError(InvalidInputError):
    """A model that is larger than it may be."""


class _Limits(TorchFunctionMode):
    """Refuses tensors of more than ``elements`` and more than ``calls`` operations, this thread's
    alone."""

    def __init__(self, elements: int, calls: int) -> None:
        super().__init__()
        self.elements, self.calls = elements, calls

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls -= 1
        if self.calls < 0:
            raise TooLargeError("it has more parts than there are tensors for.")
        if func in _FACTORIES:
            self._check(_asked(args))
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor):
            self._check(found.numel())
        return found

    def _check(self, elements: int) -> None:
        if elements > self.elements:
            raise TooLargeError(
                f"it needs a tensor of {elements:,} numbers where the largest that is there has "
                f"{self.elements:,} at most."
            )


def _asked(args: tuple[Any, ...]) -> int:
    """Elements of the tensor a factory is asked for."""
    first = args[0] if len(args) and isinstance(args[0], list | tuple) else args
    return math.prod(size for size in first if isinstance(size, int))


def build_within(build: Callable[[], T], largest: int, count: int) -> T:
    """What ``build`` builds, where no tensor in it has many more than ``largest`` elements and
    there are about ``count`` of them.

    Raises:
        TooLargeError: it would be larger; nothing large was allocated or initialised.
    """
    limits = _Limits(_FACTOR * largest + _ROOM, CALLS_PER_TENSOR * count)
    with drawing_from(torch.Generator()), limits:
        return build()
