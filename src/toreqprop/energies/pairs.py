"""Pairs: two signals ``center ± shift``, calculated with as one.

The two nudged phases of EP differ by little, in the lower layers of a deep network by less than one
rounding error of their states. Subtracting them at the end loses what was asked for. A `Pair`
carries the difference itself through every operation, by identities without cancellation: for a
product ``½(a₊b₊ − a₋b₋) = ā·b̃ + ã·b̄``, for a linear map the map of the shift, for softmax, pooling
and activations the closed forms below. It is not a derivative: the shift is finite, and both phases
are exactly what they would be on their own.

The derivative of a pair's shift is as exact. With ``Φ̃ = ½(Φ(c + d) − Φ(c − d))`` it gives both
preactivations at once: ``∂Φ̃/∂c = ũ`` and ``∂Φ̃/∂d = ū``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

Signal: TypeAlias = Any
"""A tensor, or a `Pair` of two: the code that takes one takes the other."""


class Pair:
    """``center + shift`` and ``center − shift``; torch functions listed in `LIFTED` accept it."""

    __slots__ = ("center", "shift")

    def __init__(self, center: Tensor, shift: Tensor) -> None:
        self.center = center
        self.shift = shift

    @property
    def up(self) -> Tensor:
        return self.center + self.shift

    @property
    def down(self) -> Tensor:
        return self.center - self.shift

    def map(self, linear: Callable[[Tensor], Tensor]) -> Pair:
        """The image under a linear map."""
        return Pair(linear(self.center), linear(self.shift))

    @property
    def shape(self) -> torch.Size:
        return self.center.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.center.dtype

    @property
    def mT(self) -> Pair:  # noqa: N802  (torch's name)
        return self.map(lambda t: t.mT)

    def dim(self) -> int:
        return self.center.dim()

    def is_complex(self) -> bool:
        return self.center.is_complex()

    def __len__(self) -> int:
        return len(self.center)

    def __getitem__(self, key: Any) -> Pair:
        return self.map(lambda t: t[key])

    def flatten(self, *args: int) -> Pair:
        return self.map(lambda t: t.flatten(*args))

    def unflatten(self, *args: Any) -> Pair:
        return self.map(lambda t: t.unflatten(*args))

    def reshape(self, *shape: Any) -> Pair:
        return self.map(lambda t: t.reshape(*shape))

    def transpose(self, *args: int) -> Pair:
        return self.map(lambda t: t.transpose(*args))

    def movedim(self, *args: Any) -> Pair:
        return self.map(lambda t: t.movedim(*args))

    def sum(self, *args: Any, **kwargs: Any) -> Pair:
        return self.map(lambda t: t.sum(*args, **kwargs))

    def mean(self, *args: Any, **kwargs: Any) -> Pair:
        return self.map(lambda t: t.mean(*args, **kwargs))

    def __neg__(self) -> Pair:
        return Pair(-self.center, -self.shift)

    def __add__(self, other: Any) -> Pair:
        if isinstance(other, Pair):
            return Pair(self.center + other.center, self.shift + other.shift)
        center = self.center + other
        return Pair(center, self.shift.expand(center.shape))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Pair:
        return self + (-other)

    def __rsub__(self, other: Any) -> Pair:
        return -self + other

    def __mul__(self, other: Any) -> Pair:
        return _product(torch.mul, self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Pair:
        return Pair(self.center / other, self.shift / other)

    def __matmul__(self, other: Any) -> Pair:
        return _product(torch.matmul, self, other)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        lifted = LIFTED.get(function)
        return NotImplemented if lifted is None else lifted(*args, **(kwargs or {}))


class Phases(tuple[Pair, ...]):
    """Two phases, layer by layer, and the ``memory`` of the relaxation that found them."""

    memory: tuple[Tensor, ...]

    def __new__(cls, pairs: Iterable[Pair], memory: tuple[Tensor, ...] = ()) -> Phases:
        found = super().__new__(cls, pairs)
        found.memory = memory
        return found


def _product(function: Callable[..., Tensor], a: Any, b: Any) -> Pair:
    """A bilinear function of two signals, of which at least one is a pair."""
    if not isinstance(b, Pair):
        return Pair(function(a.center, b), function(a.shift, b))
    if not isinstance(a, Pair):
        return Pair(function(a, b.center), function(a, b.shift))
    return Pair(
        function(a.center, b.center) + function(a.shift, b.shift),
        function(a.center, b.shift) + function(a.shift, b.center),
    )


def _affine(function: Callable[..., Tensor]) -> Callable[..., Pair]:
    """Input, weight and bias, as in ``F.linear``: the bias does not move, so the shift has none."""

    def lifted(
        value: Pair, weight: Tensor, bias: Tensor | None = None, *args: Any, **kwargs: Any
    ) -> Pair:
        return Pair(
            function(value.center, weight, bias, *args, **kwargs),
            function(value.shift, weight, None, *args, **kwargs),
        )

    return lifted


def _linear(function: Callable[..., Tensor]) -> Callable[..., Pair]:
    """A function linear in its first argument."""

    def lifted(value: Pair, *args: Any, **kwargs: Any) -> Pair:
        return value.map(lambda t: function(t, *args, **kwargs))

    return lifted


def _joined(function: Callable[..., Tensor]) -> Callable[..., Pair]:
    """``torch.stack`` and the like, of pairs and constants."""

    def lifted(values: Sequence[Signal], *args: Any, **kwargs: Any) -> Pair:
        return Pair(
            function([center(v) for v in values], *args, **kwargs),
            function([shift(v) for v in values], *args, **kwargs),
        )

    return lifted


def center(signal: Signal) -> Tensor:
    """The mean of the two signals; of one, itself."""
    return signal.center if isinstance(signal, Pair) else signal


def shift(signal: Signal) -> Tensor:
    """Half the difference of the two signals; of one, zero."""
    return signal.shift if isinstance(signal, Pair) else torch.zeros_like(signal)


def hyperbolic_sums(
    shares: Tensor, move: Tensor, dims: int | tuple[int, ...]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``sinh m``, ``cosh m``, ``S = Σ p·sinh m`` and ``C = Σ p·cosh m`` over ``dims``."""
    # Beyond this range the two phases have nothing in common, and e^m would overflow.
    if not move.is_complex():
        move = move.clamp(-_LARGEST_MOVE, _LARGEST_MOVE)
    odd, even = torch.sinh(move), torch.cosh(move)
    return odd, even, (shares * odd).sum(dims, True), (shares * even).sum(dims, True)


_LARGEST_MOVE = 30.0


def softmax_pair(shares: Tensor, move: Tensor, dim: int | tuple[int, ...] = -1) -> Pair:
    """``softmax(ℓ ± m)`` from ``p = softmax(ℓ)``: ``p·e^{±m}/Z±`` with ``Z± = C ± S``."""
    odd, even, total_odd, total_even = hyperbolic_sums(shares, move, dim)
    whole = shares / ((total_even + total_odd) * (total_even - total_odd))
    return Pair(
        whole * (even * total_even - odd * total_odd), whole * (odd * total_even - even * total_odd)
    )


def logsumexp_pair(value: Tensor, shares: Tensor, move: Tensor, dims: Any = -1) -> Pair:
    """``logsumexp(ℓ ± m)`` from its value and shares ``p`` at ℓ: ``½log(Z₊/Z₋) = atanh(S/C)``."""
    _, _, odd, even = hyperbolic_sums(shares, move, dims)
    mean = 0.5 * ((even + odd).log() + (even - odd).log())
    half = torch.atanh(odd / even)
    return Pair(value + mean.reshape(value.shape), half.reshape(value.shape))


def _softmax(logits: Pair, dim: int = -1) -> Pair:
    return softmax_pair(torch.softmax(logits.center, dim), logits.shift, dim)


def _logsumexp(logits: Pair, dim: int = -1) -> Pair:
    value, shares = torch.logsumexp(logits.center, dim), torch.softmax(logits.center, dim)
    return logsumexp_pair(value, shares, logits.shift, dim)


def _addmm(start: Any, a: Any, b: Any, *, alpha: float = 1.0) -> Pair:
    return _product(torch.matmul, a, b) * alpha + start


def _arithmetic(name: str) -> Callable[..., Pair]:
    def lifted(a: Any, b: Any) -> Pair:
        if isinstance(a, Pair):
            return getattr(a, f"__{name}__")(b)
        return getattr(b, f"__r{name}__")(a)

    return lifted


LIFTED: dict[Any, Callable[..., Any]] = {
    F.linear: _affine(F.linear),
    F.conv1d: _affine(F.conv1d),
    F.conv2d: _affine(F.conv2d),
    F.conv_transpose2d: _affine(F.conv_transpose2d),
    F.avg_pool2d: _linear(F.avg_pool2d),
    F.pad: _linear(F.pad),
    torch.flatten: _linear(torch.flatten),
    torch.sum: _linear(torch.sum),
    torch.stack: _joined(torch.stack),
    torch.cat: _joined(torch.cat),
    torch.matmul: lambda a, b: _product(torch.matmul, a, b),
    torch.Tensor.matmul: lambda a, b: _product(torch.matmul, a, b),
    torch.Tensor.__matmul__: lambda a, b: _product(torch.matmul, a, b),
    torch.addmm: _addmm,
    torch.softmax: _softmax,
    torch.logsumexp: _logsumexp,
    torch.add: _arithmetic("add"),
    torch.sub: _arithmetic("sub"),
    torch.mul: _arithmetic("mul"),
    torch.Tensor.add: _arithmetic("add"),
    torch.Tensor.sub: _arithmetic("sub"),
    torch.Tensor.mul: _arithmetic("mul"),
    torch.Tensor.__add__: _arithmetic("add"),
    torch.Tensor.__sub__: _arithmetic("sub"),
    torch.Tensor.__mul__: _arithmetic("mul"),
}
"""What may be done with pairs; anything else raises, and the caller differences in double."""
