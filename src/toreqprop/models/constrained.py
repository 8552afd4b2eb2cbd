"""Weights behind constraints, as ordinary modules: they copy, pickle and load like any other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, get_args

import torch
from torch import Tensor, nn

from toreqprop import checks
from toreqprop.energies import (
    Bound,
    ConvolutionBall,
    SpectralBall,
    Symmetric,
    SymmetricBall,
    TightBall,
    TightConvolutionBall,
)
from toreqprop.energies.bounded import bounded, serves
from toreqprop.errors import InvalidInputError


class Constrained(nn.Module):
    """``weight = c_k(… c_1(raw))`` and, where there is one, a bias with constraints of its own.

    The optimizer moves ``raw`` and ``raw_bias``; a network uses `weight` and `bias`.
    """

    def __init__(
        self,
        weight: Tensor,
        *constraints: nn.Module,
        bias: Tensor | None = None,
        bias_constraints: tuple[nn.Module, ...] = (),
    ) -> None:
        super().__init__()
        self.raw = nn.Parameter(weight)
        self.raw_bias = None if bias is None else nn.Parameter(bias)
        self.constraints = nn.ModuleList(constraints)
        self.bias_constraints = nn.ModuleList(bias_constraints)

    @property
    def weight(self) -> Tensor:
        value = self.raw
        for constraint in self.constraints:
            value = constraint(value)
        return value

    @weight.setter
    def weight(self, value: Tensor) -> None:
        with torch.no_grad():
            self.raw.copy_(value)

    @property
    def bias(self) -> Tensor:
        if self.raw_bias is None:
            raise AttributeError("this weight has no bias")
        value = self.raw_bias
        for constraint in self.bias_constraints:
            value = constraint(value)
        return value

    def extra_repr(self) -> str:
        return f"shape={tuple(self.raw.shape)}, bias={self.raw_bias is not None}"

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # The names of version 0.1, which used torch's parametrizations.
        for kind, name in (("weight", "raw"), ("bias", "raw_bias")):
            old = f"{prefix}parametrizations.{kind}.original"
            if old in state_dict:
                state_dict[prefix + name] = state_dict.pop(old)
        if f"{prefix}bias" in state_dict and self.raw_bias is not None:
            state_dict[f"{prefix}raw_bias"] = state_dict.pop(f"{prefix}bias")
        super()._load_from_state_dict(state_dict, prefix, *args)


def balls(
    bound: Bound,
    radius: float,
    shape: tuple[int, ...],
    *,
    symmetric: bool = False,
    compiled: bool = True,
) -> list[nn.Module]:
    """The constraints that keep a matrix of this shape below a norm (and symmetric)."""
    checks.choice("bound", bound, get_args(Bound))
    if bound == "tight":
        return [TightBall(radius, shape, symmetric=symmetric, compiled=compiled)]
    if bound == "proven" and symmetric:
        return [SymmetricBall(radius, compiled=compiled)]
    ball = SpectralBall(radius, exact=bound == "exact")
    return [Symmetric(), ball] if symmetric else [ball]


def convolution_balls(
    bound: Bound, radius: float, shape: tuple[int, ...], size: tuple[int, int]
) -> list[nn.Module]:
    """The same for a kernel over maps of this height and width."""
    checks.choice("bound", bound, get_args(Bound))
    if bound == "exact":
        raise InvalidInputError(
            'The exact norm of a convolution is too costly for every step: use bound="tight" or '
            'bound="proven".'
        )
    if bound == "proven":
        return [ConvolutionBall(radius)]
    return [TightConvolutionBall(radius, shape, size)]


@torch.no_grad()
def proofs(model: nn.Module) -> Iterator[tuple[str, float, bool]]:
    """Every weight in a `TightBall`: its name, its radius, and whether its norm is below for
    certain."""
    for name, module in model.named_modules():
        if isinstance(module, Constrained):
            for ball in module.constraints:
                if isinstance(ball, TightBall):
                    yield name, ball.radius, ball.proven(module.weight)


def constrained(layer: nn.Linear | nn.Conv2d, *constraints: nn.Module) -> nn.Module:
    """The layer's weight and bias behind constraints; the layer itself where there are none."""
    if not constraints:
        return layer
    bias = None if layer.bias is None else layer.bias.detach()
    return Constrained(layer.weight.detach(), *constraints, bias=bias)


def weights_and_biases(layers: Iterable[nn.Module]) -> list[Tensor]:
    """`weight_and_bias` of all these layers, one after the other.

    Weights that end in tight balls are brought into them together, by one call and with one node of
    the graph: for each on its own Python takes longer than the norm.
    """
    if torch.compiler.is_compiling():
        return [t for layer in layers for t in weight_and_bias(layer)]
    found: list[Tensor] = []
    waiting: list[tuple[int, TightBall, Tensor]] = []
    for layer in layers:
        constraints = layer._modules.get("constraints") if type(layer) is Constrained else None
        *before, last = constraints._modules.values() if constraints else (None,)
        if type(last) is not TightBall or layer._forward_pre_hooks or any(hooks_of(last)):
            found += weight_and_bias(layer)
            continue
        value: Any = layer._parameters["raw"]
        for constraint in before:
            value = constraint(value)  # type: ignore[misc]
        waiting.append((len(found), last, value))
        bias: Any = layer._parameters["raw_bias"]
        found += (value, layer.bias if bias is None or _more(layer) else bias)  # type: ignore[arg-type]
    if not waiting:
        return found
    places, inside, outside = zip(*waiting, strict=True)
    together = serves(inside, outside)
    within = bounded(inside, outside) if together else map(TightBall.__call__, inside, outside)
    for place, value in zip(places, within, strict=True):
        found[place] = value
    return found


def _more(layer: nn.Module) -> bool:
    """Whether the bias has constraints of its own."""
    return bool(layer._modules["bias_constraints"]._modules)  # type: ignore[union-attr]


def hooks_of(module: nn.Module) -> tuple[Any, ...]:
    """The tables of those who wait for a call of the module itself."""
    return tuple([getattr(module, name) for name in HOOKS])


HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_hooks", "_backward_pre_hooks")
"""Their names."""


def weight_and_bias(layer: nn.Module) -> list[Tensor]:
    """What a coupling takes of a layer that is never called.

    Tools that set a weight anew before every call, as torch's pruning does, are given the call.
    """
    for hook in layer._forward_pre_hooks.values():
        hook(layer, ())
    return [layer.weight, layer.bias]  # type: ignore[list-item]
