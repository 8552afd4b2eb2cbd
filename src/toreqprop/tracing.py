"""Whether torch is recording or transforming what is computed, instead of computing it."""

from __future__ import annotations

import torch
from torch import Tensor


def is_traced() -> bool:
    """Within ``torch.jit.trace`` and ``torch.export``: nothing may depend on values then."""
    return torch.jit.is_tracing() or torch.compiler.is_exporting()


def has_memory(tensor: Tensor) -> bool:
    """Whether compiled code can read the numbers: not those of ``torch.func`` transforms."""
    try:
        tensor.data_ptr()
    except RuntimeError:
        return False
    return not is_traced()
