"""Faster paths, each proven against the NumPy reference. A new one is one file and one entry."""

from __future__ import annotations

import importlib
import importlib.util
import logging
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from types import ModuleType

from toreqprop import checks
from toreqprop.errors import InvalidInputError
from toreqprop.kernels.base import Kernel
from toreqprop.kernels.reference_kernel import NumpyKernel

KERNELS = ("numpy", "torch", "numba")
"""Every name; "torch" is the general path, "auto" the fastest of those that can run here."""

_log = logging.getLogger("toreqprop")


@cache
def compiled_available() -> bool:
    """Whether Numba is installed (`pip install 'toreqprop[compiled]'`)."""
    return importlib.util.find_spec("numba") is not None


@cache
def compiled_loops() -> ModuleType | None:
    """`kernels.loops`, where Numba is installed: importing it at every step would show."""
    return importlib.import_module("toreqprop.kernels.loops") if compiled_available() else None


@cache
def compiled_hebbian() -> ModuleType | None:
    """`kernels.hebbian`, where Numba is installed."""
    return importlib.import_module("toreqprop.kernels.hebbian") if compiled_available() else None


@cache
def compiled_balls() -> ModuleType | None:
    """`kernels.balls`, where Numba is installed."""
    return importlib.import_module("toreqprop.kernels.balls") if compiled_available() else None


@cache
def has_wide_products() -> bool:
    """Whether compiled code multiplies faster than PyTorch on this processor."""
    if not compiled_available():
        return False
    return bool(importlib.import_module("toreqprop.kernels.wide_products").available())


def pytorch_products() -> AbstractContextManager[None]:
    """Within it products are PyTorch's, also where compiled code has faster ones: to see how much
    of a figure is theirs."""
    if not compiled_available():
        return nullcontext()
    products = importlib.import_module("toreqprop.kernels.products")
    within: AbstractContextManager[None] = products.pytorch_products()
    return within


def get_kernel(name: str | None) -> Kernel | None:
    """The kernel of that name; None for "torch", the general path that serves every system.

    Where Numba is missing, "auto" and "numba" are that path; one line in the log of this process
    says so. The results agree within the bounds of the harness.
    """
    if name is not None and (not isinstance(name, str) or name not in ("auto", *KERNELS)):
        raise InvalidInputError(
            f"kernel must be one of auto, {', '.join(KERNELS)} or None, got {checks.shown(name)}."
        )
    return _build(name)


@cache
def _build(name: str | None) -> Kernel | None:
    if name == "numpy":
        return NumpyKernel()
    if name is None or name == "torch":
        return None
    if name == "auto":
        return _build("numba")
    if not compiled_available():
        _log.warning(
            "Numba is not installed: the slower PyTorch path is used, with the same results. "
            "To change that: pip install 'toreqprop[compiled]'"
        )
        return None
    from toreqprop.kernels.compiled import NumbaKernel

    return NumbaKernel()


@cache
def conjugate_kernel() -> Kernel:
    """The compiled kernel that settles by conjugate gradients; needs Numba."""
    from toreqprop.kernels.compiled import NumbaKernel

    return NumbaKernel(conjugate=True)


__all__ = [
    "KERNELS",
    "Kernel",
    "compiled_available",
    "compiled_balls",
    "compiled_hebbian",
    "compiled_loops",
    "conjugate_kernel",
    "get_kernel",
    "has_wide_products",
    "pytorch_products",
]
