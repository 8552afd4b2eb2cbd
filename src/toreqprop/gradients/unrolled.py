"""Backpropagation through the relaxation: an oracle, and the thing EP does without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.energies import Gradients, Params, System, VectorField
from toreqprop.energies.system import layer_norms
from toreqprop.gradients.base import GradientEstimator, Problem
from toreqprop.solution import State

LOOK = 10
"""Every so many steps settled samples are left out: to look for them at each would take as long."""


@dataclass(frozen=True)
class UnrolledGradient(GradientEstimator):
    """Autograd through ``steps`` plain iterations; its memory grows with ``steps``.

    With ``tol`` a sample goes through as many as it needs to settle, and ``steps`` at most.
    Not equilibrium propagation: it exists to check it.
    """

    steps: int = 30
    tol: float | None = None
    bias: ClassVar[str] = "O(Lˢᵗᵉᵖˢ)"
    paper: ClassVar[str] = "Werbos 1990"

    def __post_init__(self) -> None:
        checks.whole_number("steps", self.steps, 1)
        if self.tol is not None:
            checks.number("tol", self.tol, 0, above=True, typical="1e-3 to 1e-6")

    def trajectory(self, field: VectorField, x: Tensor, params: Params) -> tuple[State, int]:
        """The last state, with its graph, and how many iterations the slowest sample took."""
        system = System.bind(field, x, params)
        state = system.initial_state()
        if self.tol is None:
            for _ in range(self.steps):
                state = system.map(state)
            return state, self.steps
        rows, taken = torch.arange(len(x), device=x.device), 0
        ended: list[tuple[Tensor, State]] = []
        while len(rows):
            many = min(LOOK, self.steps - taken)
            for _ in range(many):
                before, state = state, system.map(state)
            taken += many
            moving = _residual(system, before, state) > self.tol
            if taken == self.steps:
                moving[:] = False
            if not moving.all():
                ended.append((rows[~moving], tuple(s[~moving] for s in state)))
                rows, state = rows[moving], tuple(s[moving] for s in state)
                system = System.bind(field, x[rows], params)
        order = torch.cat([own for own, _ in ended]).argsort()
        layers = zip(*(part for _, part in ended), strict=True)
        return tuple(torch.cat(parts)[order] for parts in layers), taken

    def backward(self, problem: Problem, free: State, cotangent: State) -> Gradients:
        raise NotImplementedError("autograd differentiates the trajectory; see `trajectory`")


@torch.no_grad()
def _residual(system: System, before: State, after: State) -> Tensor:
    """(batch,): of the layer that moved most in one iteration, relative to its size."""
    gap = layer_norms(tuple(a - b for a, b in zip(after, before, strict=True)))
    return (gap / system.sizes(after)[0]).amax(1)
