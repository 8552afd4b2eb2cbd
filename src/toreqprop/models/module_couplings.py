"""What a torch module is between two layers of neurons: a coupling, an activation, or neither."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from toreqprop.energies import (
    Activation,
    AveragePoolCoupling,
    ClippedReLU,
    ConvolutionCoupling,
    Coupling,
    HardTanh,
    LeakyReLU,
    LinearCoupling,
    Logistic,
    MaxPoolCoupling,
    MeanCoupling,
    ReshapeCoupling,
    SequenceConvolutionCoupling,
    Softplus,
    Tanh,
)
from toreqprop.errors import UnsupportedModelError

AFFINE = (nn.Linear, nn.Conv1d, nn.Conv2d)
"""Modules with a weight and a bias that a layer of neurons can begin with."""


def is_affine(module: nn.Module) -> bool:
    """Whether a layer of neurons can begin with this module."""
    return any(_is(module, kind) for kind in AFFINE)


def activation_of(module: nn.Module, name: str) -> Activation | None:
    """The activation a module is, or None."""
    for kind, make in _ACTIVATIONS.items():
        if _is(module, kind):
            return make(module, name)
    return None


def coupling_of(module: nn.Module, name: str) -> Coupling:
    """The coupling a module is.

    Raises:
        UnsupportedModelError: it is none; says what to do instead.
    """
    for kind, make in _COUPLINGS.items():
        if _is(module, kind):
            return make(module, name)
    raise refused(module, name, _remedy(module))


def refused(module: nn.Module, name: str, remedy: str) -> UnsupportedModelError:
    """The error for a module that cannot be where it stands."""
    return UnsupportedModelError(
        f"{type(module).__name__} (module {name}) cannot be inside the loop of neurons: {remedy}."
    )


def _is(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether it is one of this kind that was given no forward of its own."""
    return isinstance(module, kind) and type(module).forward is kind.forward


def _linear(module: Any, name: str) -> Coupling:
    return LinearCoupling()


def _convolution(module: Any, name: str) -> Coupling:
    if module.padding_mode != "zeros":
        raise refused(module, name, 'its padding_mode must be "zeros"')
    padding = module.padding
    if padding == "valid":
        padding = (0,) * len(module.kernel_size)
    elif padding == "same":
        reach = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
        if any(total % 2 for total in reach):
            raise refused(module, name, 'padding="same" needs a kernel_size that is odd')
        padding = tuple(total // 2 for total in reach)
    if isinstance(module, nn.Conv1d):
        return SequenceConvolutionCoupling(
            padding[0], module.stride[0], module.groups, module.dilation[0]
        )
    return ConvolutionCoupling(padding, None, module.stride, module.groups, module.dilation)


def _sides(value: Any, dimensions: int) -> tuple[int, ...]:
    return (value,) * dimensions if isinstance(value, int) else tuple(value)


def _windows(module: Any, dimensions: int) -> list[tuple[int, ...]]:
    values = (module.kernel_size, module.stride, module.padding)
    return [_sides(value, dimensions) for value in values]


def _average(dimensions: int) -> Callable[[Any, str], Coupling]:
    def make(module: Any, name: str) -> Coupling:
        size, stride, padding = _windows(module, dimensions)
        partial = any(padding) and not module.count_include_pad
        if module.ceil_mode or partial or getattr(module, "divisor_override", None) is not None:
            remedy = "leave ceil_mode, count_include_pad and divisor_override at their defaults"
            raise refused(module, name, remedy)
        return AveragePoolCoupling(size, stride, padding)

    return make


def _largest(dimensions: int) -> Callable[[Any, str], Coupling]:
    def make(module: Any, name: str) -> Coupling:
        size, stride, padding = _windows(module, dimensions)
        if module.ceil_mode or module.return_indices or set(_sides(module.dilation, 1)) != {1}:
            remedy = "leave dilation, ceil_mode and return_indices at their defaults"
            raise refused(module, name, remedy)
        return MaxPoolCoupling(size, stride, padding)

    return make


def _whole(dimensions: int) -> Callable[[Any, str], Coupling]:
    def make(module: Any, name: str) -> Coupling:
        if set(_sides(module.output_size, 1)) != {1}:
            raise refused(
                module, name, f"use nn.AvgPool{dimensions}d with a window, or output_size=1"
            )
        return MeanCoupling(dimensions)

    return make


def _flatten(module: Any, name: str) -> Coupling:
    if module.start_dim == 0:
        raise refused(module, name, "start_dim must leave the batch, dimension 0, alone")
    return ReshapeCoupling((-1,), module.start_dim, module.end_dim)


def _unflatten(module: Any, name: str) -> Coupling:
    sizes = tuple(module.unflattened_size)
    if not isinstance(module.dim, int) or module.dim == 0 or not all(type(n) is int for n in sizes):
        raise refused(module, name, "give dim and sizes as numbers, and leave the batch alone")
    return ReshapeCoupling(sizes, module.dim, module.dim)


def _softplus(module: Any, name: str) -> Activation:
    if module.beta != 1:
        raise refused(module, name, "use nn.Softplus() with beta=1")
    return Softplus()


def _leaky(module: Any, name: str) -> Activation:
    if not 0 < module.negative_slope <= 1:
        raise refused(module, name, "negative_slope must be in (0, 1]")
    return LeakyReLU(module.negative_slope)


def _clipped(module: Any, name: str) -> Activation:
    low, high = module.min_val, module.max_val
    return ClippedReLU(high) if low == 0 else HardTanh(low, high)


_COUPLINGS: dict[type[nn.Module], Callable[[Any, str], Coupling]] = {
    nn.Linear: _linear,
    nn.Conv1d: _convolution,
    nn.Conv2d: _convolution,
    nn.AvgPool1d: _average(1),
    nn.AvgPool2d: _average(2),
    nn.MaxPool1d: _largest(1),
    nn.MaxPool2d: _largest(2),
    nn.AdaptiveAvgPool1d: _whole(1),
    nn.AdaptiveAvgPool2d: _whole(2),
    nn.Flatten: _flatten,
    nn.Unflatten: _unflatten,
}

_ACTIVATIONS: dict[type[nn.Module], Callable[[Any, str], Activation]] = {
    nn.Tanh: lambda module, name: Tanh(),
    nn.Sigmoid: lambda module, name: Logistic(),
    nn.ReLU: lambda module, name: ClippedReLU(float("inf")),
    nn.Hardtanh: _clipped,  # and nn.ReLU6, which is one
    nn.LeakyReLU: _leaky,
    nn.Softplus: _softplus,
}

_MONOTONE = "use nn.Softplus(), nn.ReLU6() or nn.Tanh()"
_NORMALISED = (
    "normalise in front of all layers, move what comes before it into encoder=, or leave it out"
)
_REMEDIES: list[tuple[tuple[type[nn.Module], ...], str]] = [
    (
        (nn.GELU, nn.SiLU, nn.Mish, nn.Hardswish),
        f"it is not monotone, so that no energy has it as its activation; {_MONOTONE}",
    ),
    (
        (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
        "fold it into the affine module before it (torch.nn.utils.fuse_conv_bn_eval, "
        "fuse_linear_bn_eval), move what comes before it into encoder=, or leave it out",
    ),
    ((nn.LayerNorm, nn.GroupNorm, nn.modules.instancenorm._InstanceNorm), _NORMALISED),
    (
        (nn.modules.dropout._DropoutNd,),
        "neurons that settle cannot be redrawn at every step; put it in front of the first "
        "layer, behind the last, or leave it out",
    ),
    (
        (nn.Embedding, nn.EmbeddingBag),
        "tokens have no way back; put it in front of all layers",
    ),
    (
        (nn.Softmax, nn.LogSoftmax, nn.Softmax2d, nn.Softmin),
        "leave it to the loss, as F.cross_entropy does",
    ),
    ((nn.PReLU, nn.RReLU), "its slope is not fixed; use nn.LeakyReLU(0.1)"),
    ((nn.ELU, nn.SELU, nn.CELU), "its potential is not among the activations; use nn.Softplus()"),
    ((nn.Hardsigmoid,), "use nn.Hardtanh(0, 1)"),
    ((nn.MultiheadAttention,), "use teq.EquilibriumTransformer"),
]


def _remedy(module: nn.Module) -> str:
    for kinds, remedy in _REMEDIES:
        if isinstance(module, kinds):
            return remedy
    return (
        "there is no coupling for it; replace it by nn.Linear, nn.Conv1d, nn.Conv2d or a pooling, "
        "or move it and what comes before it into encoder="
    )
