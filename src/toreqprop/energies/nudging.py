"""Nudges: the force that pulls an equilibrium towards lower cost.

The nudged energy is ``E + β·C``; its equilibria solve ``s = σ(u(s) − β·∂C/∂s)``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from toreqprop.errors import UnsupportedModelError
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
            found = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
            return tuple(self.beta * g for g in found)

    def energy(self, state: State) -> Tensor:
        with torch.no_grad():
            return self.beta * self.cost(state)


@dataclass(frozen=True)
class ClampNudge:
    """A spring on the output: ``k/2·n·(o(s) + η)²`` with ``o(s) = ⟨direction, s − origin⟩/n``.

    ``o`` is the one output the loss reads to first order: the mean displacement of the n neurons
    along the cotangent. The spring pulls it towards ``−η``; a stiff one clamps it there.
    """

    direction: State
    origin: State
    stiffness: float
    displacement: float

    def _output(self, state: State) -> Tensor:
        parts = [
            (g * (s - o)).flatten(1).sum(1)
            for g, s, o in zip(self.direction, state, self.origin, strict=True)
        ]
        return torch.stack(parts).sum(0) / self._count()

    def _count(self) -> int:
        return sum(g[0].numel() for g in self.direction)

    def force(self, state: State) -> State:
        pull = self.stiffness * (self._output(state) + self.displacement)
        return tuple(pull.reshape(-1, *[1] * (g.dim() - 1)) * g for g in self.direction)

    def energy(self, state: State) -> Tensor:
        stretch = self._output(state) + self.displacement
        return 0.5 * self.stiffness * self._count() * stretch * stretch


@dataclass(frozen=True)
class AsymmetryCorrection:
    """A nudge plus the force ``−(Uᵀ − U)(s − s*)`` with ``U = ∂u/∂s`` at the free equilibrium.

    It makes the nudged system respond as if its Jacobian were transposed, which is what the exact
    gradient needs. ``asymmetry`` maps ``v`` to ``(Uᵀ − U) v``.
    """

    nudge: Nudge
    origin: State
    asymmetry: Callable[[State], State]

    def force(self, state: State) -> State:
        moved = tuple(s - o for s, o in zip(state, self.origin, strict=True))
        pairs = zip(self.nudge.force(state), self.asymmetry(moved), strict=True)
        return tuple(f - a for f, a in pairs)

    def energy(self, state: State) -> Tensor:
        raise UnsupportedModelError(
            "A corrected vector field has no energy to descend: use solver=FixedPoint()."
        )
