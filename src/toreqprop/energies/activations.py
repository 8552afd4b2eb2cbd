"""Activations σ, each with the convex potential G whose gradient is σ⁻¹."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor


class Activation(Protocol):
    """σ and what EP needs of it, elementwise.

    ``analytic`` says that σ extends to complex arguments (needed by holomorphic EP);
    ``slope`` bounds |σ'| and turns the norm of a weight matrix into a Lipschitz constant.
    """

    analytic: ClassVar[bool]
    slope: ClassVar[float]

    def __call__(self, preactivation: Tensor) -> Tensor:
        """σ(u)."""

    def inverse(self, state: Tensor) -> Tensor:
        """A u with σ(u) = s, finite also at the edge of σ's range."""

    def potential(self, state: Tensor) -> Tensor:
        """G(s), elementwise, with G' = σ⁻¹."""


@dataclass(frozen=True)
class Tanh:
    """σ(u) = tanh u, G(s) = s·atanh(s) + ½·log(1 − s²)."""

    analytic: ClassVar[bool] = True
    slope: ClassVar[float] = 1.0

    def __call__(self, preactivation: Tensor) -> Tensor:
        return torch.tanh(preactivation)

    def inverse(self, state: Tensor) -> Tensor:
        edge = 1.0 - torch.finfo(state.dtype).eps
        return torch.atanh(state.clamp(-edge, edge))

    def potential(self, state: Tensor) -> Tensor:
        # The same function as in the docstring, written so that s = ±1 gives log 2 and not NaN.
        up, down = (1 + state).clamp_min(0), (1 - state).clamp_min(0)
        return 0.5 * (torch.xlogy(up, up) + torch.xlogy(down, down))


@dataclass(frozen=True)
class HardSigmoid:
    """σ(u) = clip(u, 0, 1), G(s) = ½·s² on the box [0, 1]."""

    analytic: ClassVar[bool] = False
    slope: ClassVar[float] = 1.0

    def __call__(self, preactivation: Tensor) -> Tensor:
        return preactivation.clamp(0.0, 1.0)

    def inverse(self, state: Tensor) -> Tensor:
        return state

    def potential(self, state: Tensor) -> Tensor:
        return 0.5 * state * state


@dataclass(frozen=True)
class Sigmoid:
    """σ(u) = 1/(1 + e^(2−4u)), `HardSigmoid` made smooth: G(s) = ½s + ¼·(s·log s + (1−s)·log(1−s)).

    Its states lie in (0, 1) and its slope is at most one.
    """

    analytic: ClassVar[bool] = True
    slope: ClassVar[float] = 1.0

    def __call__(self, preactivation: Tensor) -> Tensor:
        return torch.sigmoid(4 * preactivation - 2)

    def inverse(self, state: Tensor) -> Tensor:
        edge = torch.finfo(state.dtype).eps
        return 0.5 + 0.25 * torch.logit(state.clamp(edge, 1 - edge))

    def potential(self, state: Tensor) -> Tensor:
        up, down = state.clamp_min(0), (1 - state).clamp_min(0)
        return 0.5 * state + 0.25 * (torch.xlogy(up, up) + torch.xlogy(down, down))


@dataclass(frozen=True)
class Linear:
    """σ(u) = u, G(s) = ½·s²: equilibria are solutions of linear systems, known in closed form."""

    analytic: ClassVar[bool] = True
    slope: ClassVar[float] = 1.0

    def __call__(self, preactivation: Tensor) -> Tensor:
        return preactivation

    def inverse(self, state: Tensor) -> Tensor:
        return state

    def potential(self, state: Tensor) -> Tensor:
        return 0.5 * state * state
