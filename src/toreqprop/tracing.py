"""What torch does around a computation: recording, transforming, lowering its precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable
from torch.nn.modules import module

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def without_graph(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """``torch.no_grad()`` as a decorator that costs nothing where no graph is recorded anyway."""

    @wraps(function)
    def quiet(*args: Arguments.args, **options: Arguments.kwargs) -> Result:
        if not torch.is_grad_enabled():
            return function(*args, **options)
        with torch.no_grad():
            return function(*args, **options)

    return quiet


def last_backward(
    function: Callable[Concatenate[Any, Arguments], Result],
) -> Callable[Concatenate[Any, Arguments], Result]:
    """``once_differentiable`` that costs nothing where the backward pass records no graph."""
    watched = once_differentiable(function)

    @wraps(function)
    def backward(ctx: Any, *args: Arguments.args, **options: Arguments.kwargs) -> Result:
        if not torch.is_grad_enabled():
            return function(ctx, *args, **options)
        return watched(ctx, *args, **options)  # type: ignore[no-any-return]

    return backward


def direct(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """``function.apply`` for where no transform of ``torch.func`` is active, which the caller has
    asked: unwrapping what one may have left behind takes as long as the rest of the call."""
    return super(torch.autograd.Function, function).apply  # type: ignore[misc, no-any-return]


def is_transformed() -> bool:
    """Whether a transform of ``torch.func`` is active."""
    return torch._C._are_functorch_transforms_active()  # type: ignore[no-any-return]


def is_traced() -> bool:
    """Within ``torch.jit.trace`` and ``torch.export``: nothing may depend on values then."""
    return torch._C._get_tracing_state() is not None or torch.compiler.is_exporting()


def is_watched() -> bool:
    """Whether somebody has to see every operation of PyTorch: a trace, a transform, derivatives
    forwards, autocast, or a mode that counts or replaces them."""
    return (
        torch.compiler.is_compiling()
        or is_traced()
        or is_transformed()
        or torch._C._is_any_autocast_enabled()
        or torch._C._len_torch_dispatch_stack() > 0
        or forward_ad._current_level >= 0
    )


def has_global_hooks() -> bool:
    """Whether somebody waits for a call of any module."""
    return any(_GLOBAL_HOOKS)


_GLOBAL_HOOKS = tuple(
    getattr(module, f"_global_{name}_hooks")
    for name in ("forward", "forward_pre", "backward", "backward_pre")
)


def has_memory(tensor: Tensor) -> bool:
    """Whether compiled code can read the numbers: not those of ``torch.func`` transforms, nor of
    tensors that have a shape alone."""
    try:
        there = tensor.data_ptr() != 0 or tensor.numel() == 0
    except RuntimeError:
        return False
    return there and not is_traced()


def is_plain(tensor: Tensor) -> bool:
    """Whether compiled code may take over: float32 or float64 numbers in the memory of the CPU."""
    served = tensor.dtype in (torch.float32, torch.float64)
    return served and tensor.is_cpu and not tensor.requires_grad and has_memory(tensor)


def all_plain(tensors: Iterable[Tensor]) -> bool:
    """`is_plain` of every tensor, all of one dtype; what they record aside."""
    if is_traced():
        return False
    dtypes = set()
    try:
        for tensor in tensors:
            dtypes.add(tensor.dtype)
            if not tensor.is_cpu or not tensor.data_ptr():
                return False
    except RuntimeError:  # those of ``torch.func`` transforms have no memory
        return False
    return dtypes <= _SERVED and len(dtypes) == 1


_SERVED = {torch.float32, torch.float64}


def pace(tensor: Tensor) -> int:
    """After how many steps a loop asks how it stands, by what asking costs on the tensor's device:
    elsewhere than on the CPU it waits there for all that was begun."""
    return PACES.get(tensor.device.type, _FAR_PACE)


PACES = {"cpu": 1}
_FAR_PACE = 4
"""Steps that may turn out to have been too many, three at most, against waiting at each."""


def full_precision(x: Tensor) -> AbstractContextManager[Any]:
    """Within it autocast is off: in half precision a sum of many small steps has three digits."""
    return torch.autocast(x.device.type, enabled=False) if is_autocast(x) else _AS_IT_IS


def is_autocast(x: Tensor) -> bool:
    """Whether autocast is on for the tensor's device."""
    # The first question is the fast one.
    return torch._C._is_any_autocast_enabled() and torch.is_autocast_enabled(x.device.type)


_AS_IT_IS = nullcontext()


def is_finite(tensor: Tensor) -> bool:
    """Whether all entries are: a sum is one pass, and mostly says enough."""
    return math.isfinite(tensor.sum().item()) or bool(torch.isfinite(tensor).all())
