"""Random numbers from generators of one's own: of a model's weights, of an estimator's draws."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from toreqprop import checks

_DRAWING = frozenset(
    {
        *("uniform_", "normal_", "trunc_normal_", "random_", "bernoulli_", "exponential_"),
        *("xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_"),
        *("orthogonal_", "sparse_", "rand", "randn", "randint", "randperm", "normal"),
        *("bernoulli", "multinomial"),
    }
)
"""Functions that draw from torch's global generator unless they are given another."""


class _Drawing(TorchFunctionMode):
    """Hands a generator to every drawing function this thread calls."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.generator = generator

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        if getattr(func, "__name__", "") in _DRAWING and given.get("generator") is None:
            given["generator"] = self.generator
        return func(*args, **given)


def drawing_from(generator: torch.Generator | None) -> AbstractContextManager[Any]:
    """Within it, what this thread draws comes from ``generator``; None leaves all as it is.

    torch's global generator is shared by all threads. Within this it is not moved, and what others
    draw from it meanwhile does not matter; a seed means the same numbers in either.
    """
    checks.generator("generator", generator, optional=True)
    return nullcontext() if generator is None else _Drawing(generator)


_noise: ContextVar[torch.Generator | None] = ContextVar("noise", default=None)


def noise() -> torch.Generator | None:
    """The generator of what is left to chance in a training; None is torch's global one."""
    return _noise.get()


@contextmanager
def noise_from(generator: torch.Generator) -> Iterator[None]:
    """Within it, estimators that leave something to chance draw from ``generator``."""
    token = _noise.set(generator)
    try:
        yield
    finally:
        _noise.reset(token)
