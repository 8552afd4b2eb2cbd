"""Faster paths, each proven against the NumPy reference. A new one is one file and one entry."""

from __future__ import annotations

import importlib.util
import logging
from functools import cache

from toreqprop.errors import InvalidInputError
from toreqprop.kernels.base import Kernel, Limits, Pair, Relaxed
from toreqprop.kernels.eager import TorchKernel
from toreqprop.kernels.reference_kernel import NumpyKernel

KERNELS = ("numpy", "torch", "numba")
"""Every kernel's name; "auto" is the fastest of those that can run here."""

_log = logging.getLogger("toreqprop")


def compiled_available() -> bool:
    """Whether Numba is installed (`pip install 'toreqprop[compiled]'`)."""
    return importlib.util.find_spec("numba") is not None


@cache
def get_kernel(name: str) -> Kernel:
    """The kernel of that name.

    Where Numba is missing, "auto" and "numba" are the eager PyTorch kernel; one line in the log
    of this process says so. The results agree within the bounds of the harness.
    """
    if name == "numpy":
        return NumpyKernel()
    if name == "torch":
        return TorchKernel()
    if name == "auto":
        return get_kernel("numba")
    if name != "numba":
        raise InvalidInputError(
            f"kernel must be one of auto, {', '.join(KERNELS)} or None, got {name!r}."
        )
    if not compiled_available():
        _log.warning(
            "Numba is not installed: the slower PyTorch kernel is used, with the same results. "
            "To change that: pip install 'toreqprop[compiled]'"
        )
        return TorchKernel()
    from toreqprop.kernels.compiled import NumbaKernel

    return NumbaKernel()


__all__ = [
    "KERNELS",
    "Kernel",
    "Limits",
    "Pair",
    "Relaxed",
    "compiled_available",
    "get_kernel",
]
