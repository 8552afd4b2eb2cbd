"""Nudges: the force that pulls an equilibrium towards lower cost.

The nudged energy is ``E + β·C``; its equilibria solve ``s = σ(u(s) − β·∂C/∂s)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from toreqprop.solution import State


class Nudge(Protocol):
    """A force on the preactivations and the energy it derives from."""

    def force(self, state: State) -> State:
        """``β·∂C/∂s``, in the shapes of the state."""

    def energy(self, state: State) -> Tensor:
        """``β·C(s)`` for each sample, shape (batch,)."""


@dataclass(frozen=True)
class LinearNudge:
    """``C(s) = ⟨direction, s⟩``: the cotangent of any loss, constant during the relaxation."""

    direction: State
    beta: float | complex

    def force(self, state: State) -> State:
        return tuple(self.beta * g for g in self.direction)

    def energy(self, state: State) -> Tensor:
        parts = [(g * s).flatten(1).sum(1) for g, s in zip(self.direction, state, strict=True)]
        return self.beta * torch.stack(parts).sum(0)


@dataclass(frozen=True)
class CostNudge:
    """``C(s)`` re-evaluated along the relaxation: the classical form, the one hardware runs.

    ``cost`` maps a state to the cost of each sample, shape (batch,).
    """

    cost: Callable[[State], Tensor]
    beta: float

    def force(self, state: State) -> State:
        with torch.enable_grad():
            leaves = tuple(s.detach().requires_grad_() for s in state)
            total = self.cost(leaves).sum()
            return tuple(self.beta * g for g in torch.autograd.grad(total, leaves))

    def energy(self, state: State) -> Tensor:
        with torch.no_grad():
            return self.beta * self.cost(state)
