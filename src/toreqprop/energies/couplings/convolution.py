"""Convolutions, with a pooling of their output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.grad import conv2d_weight

from toreqprop import checks
from toreqprop.energies.base import Gradients, Params, Wants
from toreqprop.energies.convolution_norms import convolution_bound, convolution_norm
from toreqprop.energies.couplings.base import Coupling, Example, contrast_ends, weighted
from toreqprop.energies.couplings.ways import (
    ChainWays,
    LinearWays,
    MaxConvolutionWays,
    MaxWays,
    PlainConvolutionWays,
    Shaped,
    Trail,
    Ways,
    from_phases,
    phase_kernel,
    winners_gradient,
)
from toreqprop.energies.dense import gamma
from toreqprop.energies.pairs import Pair, Signal
from toreqprop.energies.pooling import (
    JUMPS,
    AveragePooling,
    MaxPooling,
    Pooling,
    SoftPooling,
    windows,
)
from toreqprop.errors import UnsupportedModelError
from toreqprop.tracing import is_plain


@dataclass(frozen=True)
class ConvolutionCoupling(Coupling):
    """``F(s) = P(K ⋆ s) + b`` for maps (batch, channels, height, width); params ``K``, ``b``.

    ``down`` is the transposed convolution of what the pooling hands down. An average pooling is
    folded into the kernel: a strided convolution, the same map for fewer products.
    """

    padding: int | tuple[int, int] = 0
    pooling: Pooling | None = None
    stride: int | tuple[int, int] = 1
    groups: int = 1
    dilation: int | tuple[int, int] = 1
    count: ClassVar[int] = 2

    def __post_init__(self) -> None:
        _check_geometry(self, _both)
        checks.instance("pooling", self.pooling, Pooling, "use MaxPooling()", optional=True)

    @property
    def analytic(self) -> bool:  # type: ignore[override]
        return self.pooling is None or self.pooling.analytic

    @property
    def linear(self) -> bool:  # type: ignore[override]
        return self.pooling is None or self.pooling.linear

    @property
    def rounds(self) -> bool:  # type: ignore[override]
        return self.pooling is None or self._folds or isinstance(self.pooling, SoftPooling)

    @property
    def _folds(self) -> bool:
        plain = self.stride in (1, (1, 1)) and self.dilation in (1, (1, 1))
        return isinstance(self.pooling, AveragePooling) and plain

    def prepare(self, params: Params) -> Params:
        kernel = in_pixels(params[0])
        if self._folds and self.pooling is not None:
            kernel = in_pixels(self.pooling.fold(kernel))
        return kernel, params[1]

    def lift(self, move: Tensor, prepared: Params) -> Tensor:
        fine = self._convolve(move, prepared[0], None)
        found: Tensor = fine if self.pooling is None or self._folds else self.pooling.pool(fine)
        return found

    def ways(self, prepared: Params, below: tuple[int, ...]) -> Ways | None:
        if isinstance(self.pooling, MaxPooling):
            fine = replace(self, pooling=None).ways(prepared, below)
            windows = (self.pooling.size,) * 2
            if fine is None:
                return None
            # A pooling knows from its trail what it was taken from.
            chain = ChainWays([fine, MaxWays(windows, windows, (0, 0))], [below, ()])
            if not self._steps_by_one:
                return chain
            return MaxConvolutionWays(chain, prepared[0], _both(self.padding), self.pooling.size)
        if self._phased(prepared[0], below):
            kernel, bias = prepared
            return PlainConvolutionWays(kernel, bias, self._stride[0], _both(self.padding))
        if self.pooling is not None and not self._folds:
            return None
        return LinearWays(self, prepared)

    @property
    def _steps_by_one(self) -> bool:
        plain = self.groups == 1 and self.dilation in (1, (1, 1))
        return plain and self._stride == (1, 1)

    def _phased(self, kernel: Tensor, below: tuple[int, ...]) -> bool:
        """Whether the transpose is a plain convolution of the phases, see `phase_kernel`."""
        step = self._stride[0]
        plain = self.groups == 1 and self.dilation in (1, (1, 1)) and self._stride == (step, step)
        if not plain or kernel.is_complex() or not (self.pooling is None or self._folds):
            return False
        both = zip(below[-2:], kernel.shape[-2:], _both(self.padding), strict=True)
        return all(step * ((n + 2 * pad - k) // step + 1) == n for n, k, pad in both)

    @property
    def _stride(self) -> tuple[int, int]:
        if self._folds and self.pooling is not None:
            return (self.pooling.size, self.pooling.size)
        return _both(self.stride)

    def _convolve(self, pre: Signal, kernel: Tensor, bias: Tensor | None) -> Signal:
        return F.conv2d(pre, kernel, bias, self._stride, self.padding, self.dilation, self.groups)

    def up(self, pre: Signal, prepared: Params, post: Signal | None) -> Signal:
        # The bias of a channel passes every pooling unchanged.
        fine = self._convolve(pre, *prepared)
        return fine if self.pooling is None or self._folds else self.pooling.pool(fine)

    def drive(self, x: Tensor, prepared: Params) -> tuple[Tensor, Trail]:
        if not isinstance(self.pooling, MaxPooling) or torch.is_grad_enabled() or x.is_complex():
            return super().drive(x, prepared)
        fine = self._convolve(x, *prepared)
        found, winners = F.max_pool2d(fine, self.pooling.size, return_indices=True)
        return found, (winners, fine)

    def _spread(self, post: Signal, pre: Signal, kernel: Tensor) -> Signal:
        """``P'(K ⋆ pre)ᵀ post``."""
        if self.pooling is None or self._folds:
            return post
        return self.pooling.spread(post, self._convolve(pre, kernel, None))

    def down(self, post: Signal, pre: Signal, prepared: Params) -> Signal:
        return self._transposed(self._spread(post, pre, prepared[0]), prepared[0], pre.shape)

    def _transposed(self, fine: Signal, kernel: Tensor, shape: torch.Size) -> Signal:
        """``Kᵀ ⋆ fine``, a map of this height and width."""
        padding, dilation = _both(self.padding), _both(self.dilation)
        if self._stride != (1, 1) and self._phased(kernel, shape[1:]):
            back, reach = phase_kernel(kernel, self._stride[0], padding)
            coarse = F.conv2d(fine, back, None, 1, reach)
            if isinstance(coarse, Pair):
                return coarse.map(lambda t: from_phases(t, self._stride[0]))
            return from_phases(coarse, self._stride[0])
        left = [
            (pixels + 2 * pad - apart * (side - 1) - 1) % step
            for pixels, pad, apart, side, step in zip(
                shape[-2:], padding, dilation, kernel.shape[-2:], self._stride, strict=True
            )
        ]
        return F.conv_transpose2d(
            fine, kernel, None, self._stride, padding, left, self.groups, dilation
        )

    def gradients(
        self,
        post: Signal,
        pre: Signal,
        weight: Tensor,
        params: Params,
        prepared: Params,
        wants: Wants,
    ) -> Gradients:
        if isinstance(post, Pair) and not isinstance(pre, Pair):
            post = post.shift  # a fixed input: only what moved counts
        post = weighted(post, weight)
        fine = self._spread(post, pre, prepared[0]) if wants[0] else None
        return self._contrast(post, fine, pre, prepared[0], wants)

    @property
    def trails(self) -> int:  # type: ignore[override]
        return 2 if isinstance(self.pooling, MaxPooling) else 0

    def settled_gradients(
        self,
        post: Signal,
        pre: Signal,
        weight: Tensor,
        prepared: Params,
        wants: Wants,
        trail: Trail,
    ) -> Gradients:
        if isinstance(post, Pair) and not isinstance(pre, Pair):
            post = post.shift
        post = weighted(post, weight)
        at_winners = self._at_winners(post, pre, prepared[0], wants, trail[0])
        if at_winners is not None:
            return at_winners, _bias_of(post) if wants[1] else None
        pooled = (self.pooling.size,) * 2 if self.pooling is not None else (1, 1)
        ways = MaxWays(pooled, pooled, (0, 0))

        def handed_down(maps: Tensor) -> Tensor:
            return ways.fall(maps, trail[1].shape, trail)

        fine = None
        if wants[0]:
            fine = post.map(handed_down) if isinstance(post, Pair) else handed_down(post)
        return self._contrast(post, fine, pre, prepared[0], wants)

    def _at_winners(
        self, post: Signal, pre: Signal, kernel: Tensor, wants: Wants, winners: Tensor
    ) -> Tensor | None:
        """The kernel's gradient from what concerns winners alone, where that is compiled."""
        if not wants[0] or not self._steps_by_one or self.pooling is None:
            return None
        above: tuple[Tensor, ...] = (post,)
        below: tuple[Tensor, ...] = (pre,)
        if isinstance(post, Pair):
            above, below = (post.shift, post.center), (pre.center, pre.shift)
        padding = _both(self.padding)
        return winners_gradient(above, below, winners, self.pooling.size, padding, kernel)

    def _contrast(
        self, post: Signal, fine: Signal | None, pre: Signal, kernel: Tensor, wants: Wants
    ) -> Gradients:
        """The local rule, given what is handed down to the map before its pooling."""
        found = bias = None
        if wants[0]:
            found = self._correlated(*contrast_ends(fine, pre), kernel)
            if self._folds and self.pooling is not None:
                found = self.pooling.unfold(found)
        if wants[1]:
            bias = _bias_of(post)
        return found, bias

    def _correlated(self, post: Tensor, pre: Tensor, kernel: Tensor) -> Tensor:
        """``Σ post ⊗ pre`` over samples and pixels, in the shape of the kernel."""
        if pre.shape[1] == 1 and pre.is_contiguous() and is_plain(pre):
            # With one channel both orders of memory are this one; torch is to take that of post.
            high, wide = pre.shape[2:]
            pre = pre.as_strided(pre.shape, (high * wide, 1, wide, 1))
        return conv2d_weight(
            pre, list(kernel.shape), post, self._stride, self.padding, self.dilation, self.groups
        )

    def norm(self, params: Params, shape: tuple[int, ...]) -> float:
        if self.pooling is not None and self.pooling.curvature is None:
            raise UnsupportedModelError(JUMPS)
        gain = 1.0 if self.pooling is None else self.pooling.gain
        return gain * self._kernel_norm(params, shape)

    def curvature(self, params: Params, shape: tuple[int, ...]) -> float:
        curved = 0.0 if self.pooling is None else self.pooling.curvature or 0.0
        return curved * self._kernel_norm(params, shape) ** 2 if curved else 0.0

    def _kernel_norm(self, params: Params, shape: tuple[int, ...]) -> float:
        # Groups act on channels of their own: the norm is the largest of theirs.
        kernels = _dilated(params[0].detach(), _both(self.dilation)).unflatten(0, (self.groups, -1))
        if not shape:  # for maps of any size
            return max(float(convolution_bound(kernel.double())) for kernel in kernels)
        return max(convolution_norm(kernel, shape[-2], shape[-1]) for kernel in kernels)

    def up_rounding(self, pre: Tensor, prepared: Params) -> Tensor:
        magnitude = self._convolve(pre.abs(), prepared[0].abs(), prepared[1].abs())
        off = gamma(prepared[0][0].numel() + 2 + self._folding) * magnitude
        if not isinstance(self.pooling, SoftPooling):
            return off
        # A mean of exponentials moves by no more than what moves most in its window.
        worst, largest = (windows(t, self.pooling.size).amax((3, 5)) for t in (off, magnitude))
        return worst + gamma(self._folding + 32) * (largest + self.pooling.temperature)

    def down_rounding(self, post: Tensor, pre: Tensor, prepared: Params) -> Tensor:
        kernel = prepared[0].abs()
        fine = self._spread(post.abs(), pre, prepared[0])
        off = gamma(prepared[0].numel() + 2 + self._folding) * fine
        if isinstance(self.pooling, SoftPooling):
            magnitude = self._convolve(pre.abs(), kernel, None)
            logits = gamma(prepared[0][0].numel() + 4) * magnitude / self.pooling.temperature
            shares = torch.expm1(2 * logits.amax((1, 2, 3), keepdim=True))
            off = off + (shares + gamma(self._folding + 32)) * fine
        return self._transposed(off, kernel, pre.shape)

    @property
    def _folding(self) -> int:
        """Terms of the sums over a window."""
        return 0 if self.pooling is None else self.pooling.size**2

    @classmethod
    def examples(cls) -> list[Example]:
        one, two = ((3, 2, 3, 3), (3,)), ((4, 1, 3, 2), (4,))
        return [
            Example(cls(1), (2, 4, 5), one),
            Example(cls((1, 0), stride=(2, 1), groups=2), (2, 5, 4), two),
            Example(cls(2, stride=2, dilation=2), (2, 6, 5), one),
            Example(cls(1, AveragePooling()), (2, 5, 4), one),
            Example(cls(1, MaxPooling()), (2, 5, 4), one),
            Example(cls(1, SoftPooling(temperature=2.0)), (2, 5, 4), one),
        ]


@dataclass(frozen=True)
class SequenceConvolutionCoupling(Coupling):
    """``F(s) = K ⋆ s + b`` for (batch, channels, length); params ``K`` (out, in, width), ``b``.

    With a kernel of width one it is a matrix along the channels, as token mixing needs it.
    """

    padding: int = 0
    stride: int = 1
    groups: int = 1
    dilation: int = 1
    count: ClassVar[int] = 2
    linear: ClassVar[bool] = True
    rounds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_geometry(self, lambda side: (side,))

    @cached_property
    def _flat(self) -> ConvolutionCoupling:
        """The same for maps of height one."""
        return ConvolutionCoupling(
            (0, self.padding), None, (1, self.stride), self.groups, (1, self.dilation)
        )

    def prepare(self, params: Params) -> Params:
        return params[0].unsqueeze(2), params[1]

    def up(self, pre: Signal, prepared: Params, post: Signal | None) -> Signal:
        return _lowered(self._flat.up(_raised(pre), prepared, None))

    def lift(self, move: Tensor, prepared: Params) -> Tensor:
        return self._flat.lift(move.unsqueeze(2), prepared).squeeze(2)

    def down(self, post: Signal, pre: Signal, prepared: Params) -> Signal:
        return _lowered(self._flat.down(_raised(post), _raised(pre), prepared))

    def gradients(
        self,
        post: Signal,
        pre: Signal,
        weight: Tensor,
        params: Params,
        prepared: Params,
        wants: Wants,
    ) -> Gradients:
        kernel, bias = self._flat.gradients(
            _raised(post), _raised(pre), weight, params, prepared, wants
        )
        return None if kernel is None else kernel.squeeze(2), bias

    def norm(self, params: Params, shape: tuple[int, ...]) -> float:
        flat = (shape[0], 1, shape[1]) if shape else ()
        return self._flat.norm(self.prepare(params), flat)

    def up_rounding(self, pre: Tensor, prepared: Params) -> Tensor:
        return self._flat.up_rounding(pre.unsqueeze(2), prepared).squeeze(2)

    def down_rounding(self, post: Tensor, pre: Tensor, prepared: Params) -> Tensor:
        high = self._flat.down_rounding(post.unsqueeze(2), pre.unsqueeze(2), prepared)
        return high.squeeze(2)

    @classmethod
    def examples(cls) -> list[Example]:
        return [
            Example(cls(1, stride=2), (2, 6), ((3, 2, 3), (3,))),
            Example(cls(2, groups=2, dilation=2), (2, 5), ((4, 1, 3), (4,))),
            Example(cls(), (3, 4), ((5, 3, 1), (5,))),
        ]


def _bias_of(post: Signal) -> Tensor:
    moved: Tensor = post.shift if isinstance(post, Pair) else post
    return moved.sum((0, 2, 3))


def _raised(sequence: Any) -> Any:
    """(batch, channels, length) as maps of height one; what stands for a shape alone, as theirs."""
    if isinstance(sequence, Shaped):
        samples, channels, length = sequence.shape
        return Shaped(torch.Size((samples, channels, 1, length)))
    return sequence[:, :, None]


def _lowered(maps: Signal) -> Signal:
    return maps[:, :, 0]


def in_pixels(kernel: Tensor) -> Tensor:
    """The kernel in an order of memory in which all channels of a pixel lie together.

    Maps then come out in that order too, in which torch convolves and pools faster on a processor.
    """
    if kernel.is_complex() or not kernel.is_cpu:
        return kernel
    # Not `contiguous`: with one channel it takes any order for this one.
    return kernel.to(memory_format=torch.channels_last)


def _both(sides: int | tuple[int, int]) -> tuple[int, int]:
    return sides if isinstance(sides, tuple) else (sides, sides)


def _check_geometry(coupling: Any, sides: Callable[[Any], tuple[Any, ...]]) -> None:
    """Refuse what is no padding, stride or dilation along each of the ``sides``, or no groups."""
    for name, low, example in (("padding", 0, "1"), ("stride", 1, "2"), ("dilation", 1, "1")):
        given = sides(getattr(coupling, name))
        checks.sizes(name, given, len(given), example, low=low, most=2)
    checks.whole_number("groups", coupling.groups, 1)


def _dilated(kernel: Tensor, dilation: tuple[int, int]) -> Tensor:
    """The kernel with the zeros a dilation puts between its entries."""
    if dilation == (1, 1):
        return kernel
    sides = [d * (n - 1) + 1 for d, n in zip(dilation, kernel.shape[-2:], strict=True)]
    found = kernel.new_zeros(*kernel.shape[:2], *sides)
    found[..., :: dilation[0], :: dilation[1]] = kernel
    return found
