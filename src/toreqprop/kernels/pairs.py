"""Functions of one signal or of two phases, compiled for tensors; None where they do not serve.

They serve float32 numbers in the memory of the CPU that record no graph, where nobody has to see
PyTorch's own operations. In float64, which is for checking, those are exact to the last digit.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from toreqprop.kernels import compiled_available, has_wide_products
from toreqprop.tracing import has_memory, is_watched

LEAST = 1 << 16
"""Factors that are multiplied with each other: smaller products take less than the call."""


def tanh_pair(center: Tensor, shift: Tensor) -> tuple[Tensor, Tensor] | None:
    """Mean and half the difference of ``tanh(center ± shift)``."""
    if not _serve(center, shift):
        return None
    middle, half = torch.empty_like(center), torch.empty_like(center)
    _loops().tanh_pair(*[t.detach().numpy().reshape(-1) for t in (center, shift, middle, half)])
    return middle, half


def softmax(logits: Tensor) -> Tensor | None:
    """Over the last dimension."""
    if not _serve(logits, logits):
        return None
    shares = torch.empty_like(logits)
    n = logits.shape[-1]
    _loops().softmax(logits.detach().numpy().reshape(-1, n), shares.numpy().reshape(-1, n))
    return shares


def softmax_pair(logits: Tensor, move: Tensor) -> tuple[Tensor, Tensor] | None:
    """Mean and half the difference of ``softmax(logits ± move)`` over the last dimension."""
    if not _serve(logits, move):
        return None
    mean, half = torch.empty_like(logits), torch.empty_like(logits)
    n = logits.shape[-1]
    _loops().softmax_pair(*[t.detach().numpy().reshape(-1, n) for t in (logits, move, mean, half)])
    return mean, half


def rows_times(rows: Tensor, weight: Tensor, *, rising: bool) -> Tensor | None:
    """``rows·Wᵀ`` where ``rising``, else ``rows·W``, over the last dimension, where compiled
    products are faster than PyTorch's."""
    if is_watched() or not has_wide_products():  # sizes may be symbols there
        return None
    if weight.dim() != 2 or rows.numel() * len(weight) < LEAST:
        return None
    if not (_plain(rows) and _plain(weight)) or rows.shape[-1] != weight.shape[rising]:
        return None
    products = _products()
    routine = products.routine(rows.dtype)
    if not routine.wide:
        return None
    inner, columns = weight.shape[::-1] if rising else weight.shape
    out = rows.new_empty(*rows.shape[:-1], columns)
    places = rows.data_ptr(), weight.data_ptr(), out.data_ptr()
    sizes, strides = (rows.numel() // inner, inner, columns), (inner, weight.shape[1], columns)
    products.matrix_product(routine, places, sizes, strides, (False, rising), 1.0)
    return out


def _serve(one: Tensor, two: Tensor) -> bool:
    if is_watched() or not compiled_available():  # sizes may be symbols there
        return False
    return one.shape == two.shape and _plain(one) and _plain(two)


def _plain(tensor: Tensor) -> bool:
    if type(tensor) is not Tensor and type(tensor) is not nn.Parameter:
        return False
    if tensor.dtype is not torch.float32 or not tensor.is_cpu or not tensor.is_contiguous():
        return False
    if not tensor.dim() or not tensor.numel() or (tensor.requires_grad and torch.is_grad_enabled()):
        return False
    return has_memory(tensor)


@cache
def _loops() -> Any:
    from toreqprop.kernels import pair_loops

    return pair_loops


@cache
def _products() -> Any:
    from toreqprop.kernels import products

    return products
