"""Activations σ, each with its convex potential G, ``G' = σ⁻¹``, and its exact differences."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop import checks
from toreqprop.energies.pairs import Pair, Signal
from toreqprop.errors import InvalidInputError
from toreqprop.kernels.pairs import tanh_pair

HIGHER = {torch.float32: torch.float64, torch.complex64: torch.complex128}
"""Where differences are taken that have no form without cancellation."""


class Activation(ABC):
    """A monotone σ and what EP needs of it, elementwise.

    ``analytic`` says that σ extends to complex arguments (needed by holomorphic EP);
    ``slope`` bounds σ' and turns the norm of a weight matrix into a Lipschitz constant; ``reach``
    bounds ``|σ|``.
    """

    analytic: ClassVar[bool] = False
    slope: ClassVar[float] = 1.0

    @property
    def reach(self) -> float:
        return 1.0

    @abstractmethod
    def __call__(self, preactivation: Tensor) -> Tensor:
        """σ(u)."""

    @abstractmethod
    def inverse(self, state: Tensor) -> Tensor:
        """A u with σ(u) = s, finite also at the edge of σ's range."""

    @abstractmethod
    def potential(self, state: Tensor) -> Tensor:
        """G(s), elementwise, with G' = σ⁻¹."""

    def pair(self, center: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and half the difference of ``σ(center ± shift)``, the latter without cancellation.

        Override it with a closed form; this one takes the difference in double precision.
        """
        dtype = HIGHER.get(center.dtype, center.dtype)
        c, d = center.to(dtype), shift.to(dtype)
        up, down = self(c + d), self(c - d)
        return (0.5 * (up + down)).to(center.dtype), (0.5 * (up - down)).to(center.dtype)

    def around(self, center: Tensor, state: Tensor) -> tuple[Tensor, ...]:
        """What `half` and `middle` need to know of ``center`` and ``state = σ(center)``, once."""
        return (center,)

    def half(self, known: tuple[Tensor, ...], shift: Tensor) -> Tensor:
        """Half the difference of ``σ(center ± shift)``, as in `pair`."""
        return self.pair(known[0], shift)[1]

    def middle(self, known: tuple[Tensor, ...], shift: Tensor, half: Tensor) -> Tensor:
        """The mean of ``σ(center ± shift)``, as in `pair`; ``half`` is that of `half`."""
        return self.pair(known[0], shift)[0]


def check_activation(value: object) -> None:
    """Refuse what is no activation."""
    checks.instance("activation", value, Activation, "use Tanh()")


def activated(activation: Activation, preactivation: Signal) -> Signal:
    """σ of one signal, or of two carried as a pair."""
    if isinstance(preactivation, Pair):
        return Pair(*activation.pair(preactivation.center, preactivation.shift))
    return activation(preactivation)


@dataclass(frozen=True)
class Tanh(Activation):
    """σ(u) = tanh u, G(s) = s·atanh(s) + ½·log(1 − s²)."""

    analytic: ClassVar[bool] = True

    def __call__(self, preactivation: Tensor) -> Tensor:
        return torch.tanh(preactivation)

    def inverse(self, state: Tensor) -> Tensor:
        edge = 1.0 - torch.finfo(state.dtype).eps
        return torch.atanh(state.clamp(-edge, edge))

    def potential(self, state: Tensor) -> Tensor:
        # The same function as in the docstring, written so that s = ±1 gives log 2 and not NaN.
        up, down = (1 + state).clamp_min(0), (1 - state).clamp_min(0)
        return 0.5 * (torch.xlogy(up, up) + torch.xlogy(down, down))

    def pair(self, center: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        """``s(1 − t²)/(1 − s²t²)`` and ``t(1 − s²)/(1 − s²t²)``, ``s = tanh c``, ``t = tanh d``."""
        found = tanh_pair(center, shift)
        if found is not None:
            return found
        s, t = torch.tanh(center), torch.tanh(shift)
        if not t.is_complex():  # a saturated shift on a saturated center would divide by zero
            edge = 1.0 - torch.finfo(t.dtype).eps
            t = t.clamp(-edge, edge)
        a, b = s * s, t * t
        whole = 1 - a * b
        return s * (1 - b) / whole, t * (1 - a) / whole

    def around(self, center: Tensor, state: Tensor) -> tuple[Tensor, ...]:
        square = state * state
        return state, square, 1 - square

    def half(self, known: tuple[Tensor, ...], shift: Tensor) -> Tensor:
        _, square, slope = known
        edge = 1.0 - torch.finfo(shift.dtype).eps
        t = torch.tanh(shift).clamp_(-edge, edge)
        whole = (t * t).mul_(square).neg_().add_(1)
        return t.mul_(slope).div_(whole)

    def middle(self, known: tuple[Tensor, ...], shift: Tensor, half: Tensor) -> Tensor:
        """``s − s·t·half``."""
        return known[0] - known[0] * torch.tanh(shift) * half


@dataclass(frozen=True)
class Sigmoid(Activation):
    """σ(u) = 1/(1 + e^(2−4u)), `HardSigmoid` made smooth: G(s) = ½s + ¼·(s·log s + (1−s)·log(1−s)).

    Its states lie in (0, 1) and its slope is at most one.
    """

    analytic: ClassVar[bool] = True

    def __call__(self, preactivation: Tensor) -> Tensor:
        return torch.sigmoid(4 * preactivation - 2)

    def inverse(self, state: Tensor) -> Tensor:
        edge = torch.finfo(state.dtype).eps
        return 0.5 + 0.25 * torch.logit(state.clamp(edge, 1 - edge))

    def potential(self, state: Tensor) -> Tensor:
        up, down = state.clamp_min(0), (1 - state).clamp_min(0)
        return 0.5 * state + 0.25 * (torch.xlogy(up, up) + torch.xlogy(down, down))

    def pair(self, center: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        """As σ(u) = ½(1 + tanh(2u − 1))."""
        mean, half = Tanh().pair(2 * center - 1, 2 * shift)
        return 0.5 * (1 + mean), 0.5 * half

    def around(self, center: Tensor, state: Tensor) -> tuple[Tensor, ...]:
        return Tanh().around(center, 2 * state - 1)

    def half(self, known: tuple[Tensor, ...], shift: Tensor) -> Tensor:
        return Tanh().half(known, 2 * shift).mul_(0.5)

    def middle(self, known: tuple[Tensor, ...], shift: Tensor, half: Tensor) -> Tensor:
        return 0.5 + 0.5 * Tanh().middle(known, 2 * shift, 2 * half)


@dataclass(frozen=True)
class Logistic(Activation):
    """σ(u) = 1/(1 + e^−u), torch's sigmoid: G(s) = s·log s + (1−s)·log(1−s), slope at most ¼."""

    analytic: ClassVar[bool] = True
    slope: ClassVar[float] = 0.25

    def __call__(self, preactivation: Tensor) -> Tensor:
        return torch.sigmoid(preactivation)

    def inverse(self, state: Tensor) -> Tensor:
        edge = torch.finfo(state.dtype).eps
        return torch.logit(state.clamp(edge, 1 - edge))

    def potential(self, state: Tensor) -> Tensor:
        up, down = state.clamp_min(0), (1 - state).clamp_min(0)
        return torch.xlogy(up, up) + torch.xlogy(down, down)

    def pair(self, center: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        """As σ(u) = ½(1 + tanh(u/2))."""
        mean, half = Tanh().pair(0.5 * center, 0.5 * shift)
        return 0.5 * (1 + mean), 0.5 * half


@dataclass(frozen=True)
class HardSigmoid(Activation):
    """σ(u) = clip(u, 0, 1), G(s) = ½·s² on the box [0, 1]."""

    def __call__(self, preactivation: Tensor) -> Tensor:
        return preactivation.clamp(0.0, 1.0)

    def inverse(self, state: Tensor) -> Tensor:
        return state

    def potential(self, state: Tensor) -> Tensor:
        return 0.5 * state * state

    def pair(self, center: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        return _clipped(center, shift, 0.0, 1.0)


@dataclass(frozen=True)
class HardTanh(Activation):
    """σ(u) = clip(u, low, high), G(s) = ½·s² on the box."""

    low: float = -1.0
    high: float = 1.0

    def __post_init__(self) -> None:
        checks.number("low", self.low)
        checks.number("high", self.high)
        if not self.low < self.high:
            raise InvalidInputError(f"low must be < high, got {self.low} and {self.high}.")

    @property
    def reach(self) -> float:
        return max(abs(self.low), abs(self.high))

    def __call__(self, preactivation: Tensor) -> Tensor:
        return preactivation.clamp(self.low, self.high)

    def inverse(self, state: Tensor) -> Tensor:
        return state

    def potential(self, state: Tensor) -> Tensor:
        return 0.5 * state * state

    def pair(self, center: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        return _clipped(center, shift, self.low, self.high)


@dataclass(frozen=True)
class ClippedReLU(Activation):
    """σ(u) = clip(u, 0, height), G(s) = ½·s² on the box: ReLU6 with ``height=6``.

    An infinite height is ReLU: its potential is as convex, but the energy is bounded below, and an
    equilibrium exists for certain, only where the couplings are weak.
    """

    height: float = 6.0

    def __post_init__(self) -> None:
        if not (isinstance(self.height, float) and self.height == float("inf")):
            checks.number("height", self.height, 0, above=True, typical="1 to 6")

    @property
    def reach(self) -> float:
        return self.height

    def __call__(self, preactivation: Tensor) -> Tensor:
        return preactivation.clamp(0.0, self.height)

    def inverse(self, state: Tensor) -> Tensor:
        return state

    def potential(self, state: Tensor) -> Tensor:
        return 0.5 * state * state

    def pair(self, center: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        return _clipped(center, shift, 0.0, self.height)


@dataclass(frozen=True)
class LeakyReLU(Activation):
    """σ(u) = u for u > 0, leak·u below; G(s) = ½·s², divided by the leak below zero."""

    leak: float = 0.1

    def __post_init__(self) -> None:
        # At zero the inverse is not defined.
        checks.between("leak", self.leak, 0, 1, typical="0.01 to 0.3")

    @property
    def reach(self) -> float:
        return float("inf")

    def __call__(self, preactivation: Tensor) -> Tensor:
        return F.leaky_relu(preactivation, self.leak)

    def inverse(self, state: Tensor) -> Tensor:
        return torch.where(state > 0, state, state / self.leak)

    def potential(self, state: Tensor) -> Tensor:
        return 0.5 * state * self.inverse(state)

    def pair(self, center: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        """``leak·u + (1 − leak)·max(u, 0)``, each part without cancellation."""
        mean, half = _clipped(center, shift, 0.0, torch.inf)
        return torch.lerp(mean, center, self.leak), torch.lerp(half, shift, self.leak)


@dataclass(frozen=True)
class Softplus(Activation):
    """σ(u) = log(1 + e^u): smooth, monotone, unbounded; G by the dual of ``∫σ``."""

    @property
    def reach(self) -> float:
        return float("inf")

    def __call__(self, preactivation: Tensor) -> Tensor:
        return F.softplus(preactivation)

    def inverse(self, state: Tensor) -> Tensor:
        s = state.clamp_min(torch.finfo(state.dtype).tiny)
        return s + torch.log(-torch.expm1(-s))

    def potential(self, state: Tensor) -> Tensor:
        u = self.inverse(state)
        return state * u - _softplus_integral(u)

    def pair(self, center: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        """``½·log1p(sigmoid(c − d)·(e^{2d} − 1))``, c the center, d the shift; where d is large
        nothing cancels, and the difference is taken."""
        up, down = center + shift, center - shift
        near = shift.clamp(-1.0, 1.0)
        half = 0.5 * torch.log1p(torch.sigmoid(center - near) * torch.expm1(2 * near))
        above, below = F.softplus(up), F.softplus(down)
        return 0.5 * (above + below), torch.where(near == shift, half, 0.5 * (above - below))


@dataclass(frozen=True)
class Linear(Activation):
    """σ(u) = u, G(s) = ½·s²: equilibria are solutions of linear systems, known in closed form."""

    analytic: ClassVar[bool] = True

    @property
    def reach(self) -> float:
        return float("inf")

    def __call__(self, preactivation: Tensor) -> Tensor:
        return preactivation

    def inverse(self, state: Tensor) -> Tensor:
        return state

    def potential(self, state: Tensor) -> Tensor:
        return 0.5 * state * state

    def pair(self, center: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        return center, shift


ACTIVATIONS: dict[str, type[Activation]] = {
    "tanh": Tanh,
    "sigmoid": Sigmoid,
    "logistic": Logistic,
    "hard_sigmoid": HardSigmoid,
    "hard_tanh": HardTanh,
    "clipped_relu": ClippedReLU,
    "leaky_relu": LeakyReLU,
    "softplus": Softplus,
    "linear": Linear,
}
"""Every activation; the contract tests run through it."""


def _clipped(center: Tensor, shift: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """``clip(c ± d)``: what is left of ±d after clipping, so that nothing of size c cancels."""
    below, above = low - center, high - center
    up = torch.minimum(torch.maximum(shift, below), above)
    down = torch.minimum(torch.maximum(-shift, below), above)
    return center + 0.5 * (up + down), 0.5 * (up - down)


def _softplus_integral(u: Tensor) -> Tensor:
    """``∫_{−∞}^u log(1 + e^v) dv``; above zero by ``H(u) + H(−u) = π²/6 + u²/2``."""
    z = torch.exp(-u.abs())
    nodes, weights = np.polynomial.legendre.leggauss(16)
    total = torch.zeros_like(u)
    for node, weight in zip(0.5 * (nodes + 1), 0.5 * weights, strict=True):
        # The integrand log(1 + z)/z is smooth on [0, 1]: 16 points are exact to rounding.
        total = total + weight * torch.log1p(node * z) / node
    return torch.where(u > 0, np.pi**2 / 6 + 0.5 * u * u - total, total)
