"""Constraints on weights, as torch parametrizations: symmetry and a certified spectral norm."""

from __future__ import annotations

import importlib
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from toreqprop import checks
from toreqprop.errors import InvalidInputError
from toreqprop.kernels import compiled_available
from toreqprop.tracing import has_memory, last_backward


class Symmetric(nn.Module):
    """``A ↦ (A + Aᵀ)/2``: a recurrent matrix with an energy."""

    def forward(self, weight: Tensor) -> Tensor:
        return 0.5 * (weight + weight.mT)

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight


class SpectralBall(nn.Module):
    """``W ↦ W · min(1, radius / ν(W))`` with ``ν(W) ≥ ‖W‖₂`` proven, so ``‖W‖₂ ≤ radius``.

    Power iteration, the usual estimate of ``‖W‖₂``, approaches it from below: after a large
    optimizer step the estimate is too small and the norm escapes. This bound comes from above;
    see `spectral_bound`. ``exact=True`` computes ``‖W‖₂`` itself by singular values: tight, which
    deep chains need, for the price of a decomposition at every step; `TightBall` for that of a few
    products.
    """

    def __init__(self, radius: float, exact: bool = False) -> None:
        super().__init__()
        self.radius = checks.number("radius", radius, 0, above=True, typical="0.1 to 0.95")
        checks.flag("exact", exact)
        self.exact = exact

    def forward(self, weight: Tensor, symmetric: bool | None = None) -> Tensor:
        # In units of the largest entry, so that nothing leaves the range of floats.
        peak = weight.detach().abs().max().clamp_min(torch.finfo(weight.dtype).tiny)
        unit = weight / peak
        size = (
            torch.linalg.matrix_norm(unit, 2)
            if self.exact
            else spectral_bound(unit, symmetric=symmetric)
        )
        inside = peak.double() * size.detach().double() <= self.radius
        return torch.where(inside, weight, unit * (self.radius / size))

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight

    def extra_repr(self) -> str:
        return f"radius={self.radius}"


class NearIdentity(nn.Module):
    """``A ↦ gain·I + rate·A``: a coupling that passes a signal on, and learns a correction to it.

    With a rate of one over the depth, a step of the optimizer changes what the whole stack does by
    as much as it would change one layer. A bias has no identity: ``b ↦ rate·b``.
    """

    def __init__(self, gain: float, rate: float) -> None:
        super().__init__()
        self.gain = checks.number("gain", gain, typical="1")
        self.rate = checks.number("rate", rate, 0, above=True, typical="one over the depth")

    def forward(self, value: Tensor) -> Tensor:
        if value.dim() == 1:
            return self.rate * value
        unit = torch.eye(*value.shape, dtype=value.dtype, device=value.device)
        return torch.add(self.gain * unit, value, alpha=self.rate)


class SymmetricBall(nn.Module):
    """``SpectralBall(radius)`` after ``Symmetric()``, in few passes over memory where it can be.

    With Numba on the CPU both the matrix and its gradient are computed in closed form, otherwise
    by autograd; ``compiled=False`` asks for the latter. The two agree to rounding.
    """

    def __init__(self, radius: float, compiled: bool = True) -> None:
        super().__init__()
        self.symmetric = Symmetric()
        self.ball = SpectralBall(radius)
        checks.flag("compiled", compiled)
        self.compiled = compiled and compiled_available()

    def forward(self, weight: Tensor) -> Tensor:
        plain = weight.is_cpu and weight.dtype in (torch.float32, torch.float64)
        if self.compiled and plain and has_memory(weight):
            return _SymmetricBall.apply(weight, self.ball.radius)
        return self.ball(self.symmetric(weight), symmetric=True)

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight


class _SymmetricBall(torch.autograd.Function):
    """The closed form of `SymmetricBall`; `kernels.reference.spectral_ball` derives it."""

    @staticmethod
    def forward(ctx: Any, raw: Tensor, radius: float) -> Tensor:
        symmetric_ball = _compiled().symmetric_ball
        ctx.unit = 1.0
        weight, ctx.bound = symmetric_ball(raw, radius)
        if not ctx.bound.bound < _LARGEST_BOUND:  # sums left the range of floats, or a NaN
            ctx.unit = 1.0 / float(raw.abs().max())
            weight, ctx.bound = symmetric_ball(raw * ctx.unit, radius)
        ctx.save_for_backward(weight)
        return weight

    @staticmethod
    @last_backward
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (weight,) = ctx.saved_tensors
        found = _compiled().symmetric_ball_gradient(gradient, weight, ctx.bound)
        return (found if ctx.unit == 1 else found * ctx.unit), None


@cache
def _compiled() -> ModuleType:
    return importlib.import_module("toreqprop.kernels.ball")


_LARGEST_BOUND = 1e30


def spectral_bound(weight: Tensor, sharpen: int = 2, *, symmetric: bool | None = None) -> Tensor:
    """A proven upper bound on ``‖W‖₂`` in O(size) time, a pure and differentiable function of W.

    With ``M = |W|ᵀ|W|`` (or ``|W|`` itself where W is symmetric) and any positive vector d,
    ``‖W‖₂² = ρ(WᵀW) ≤ ρ(M) ≤ max_i (M d)_i / d_i`` (Perron-Frobenius, Collatz-Wielandt).
    ``sharpen`` products with M make d approach the Perron vector, where the last bound is tight;
    any number of them is valid. ``symmetric`` None looks whether W is.
    """
    checks.weights("weight", weight, 2)
    checks.whole_number("sharpen", sharpen, 0)
    if symmetric is not None:
        checks.flag("symmetric", symmetric)
        if symmetric and weight.shape[0] != weight.shape[1]:
            raise InvalidInputError(
                f"A symmetric weight is square, got {tuple(weight.shape)}: leave symmetric out."
            )
    magnitude = weight.abs()
    peak = magnitude.detach().max().clamp_min(torch.finfo(weight.dtype).tiny)
    magnitude = magnitude / peak
    if symmetric is None:
        with torch.no_grad():
            symmetric = weight.shape[0] == weight.shape[1] and torch.equal(weight, weight.mT)

    def product(vector: Tensor) -> Tensor:
        forward = magnitude @ vector
        return forward if symmetric else magnitude.mT @ forward

    vector = weight.new_ones(weight.shape[1])
    for _ in range(sharpen):
        vector = product(vector)
        # Rows without weights would give 0/0; any positive entry keeps the bound valid.
        vector = vector / vector.max().clamp_min(torch.finfo(weight.dtype).tiny) + 1e-6
    ratio = (product(vector) / vector).max()
    return peak * (ratio if symmetric else ratio.sqrt())
