"""What torch does around a computation: recording, transforming, lowering its precision."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def is_traced() -> bool:
    """Within ``torch.jit.trace`` and ``torch.export``: nothing may depend on values then."""
    return torch._C._get_tracing_state() is not None or torch.compiler.is_exporting()


def has_memory(tensor: Tensor) -> bool:
    """Whether compiled code can read the numbers: not those of ``torch.func`` transforms."""
    try:
        tensor.data_ptr()
    except RuntimeError:
        return False
    return not is_traced()


def is_plain(tensor: Tensor) -> bool:
    """Whether compiled code may take over: float32 or float64 numbers in the memory of the CPU."""
    served = tensor.dtype in (torch.float32, torch.float64)
    return served and tensor.is_cpu and not tensor.requires_grad and has_memory(tensor)


def full_precision(device: str) -> AbstractContextManager[Any]:
    """Within it autocast is off: in half precision a sum of many small steps has three digits."""
    if torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()


def is_finite(tensor: Tensor) -> bool:
    """Whether all entries are: a sum is one pass, and mostly says enough."""
    return math.isfinite(tensor.sum().item()) or bool(torch.isfinite(tensor).all())
