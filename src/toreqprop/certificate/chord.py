"""Newton's method with one Jacobian: for adjoints that iteration takes too long to find."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from toreqprop.solution import State
from toreqprop.solvers.base import Dynamics, Solver

ENTRIES = 2**24
"""The most numbers of all samples' Jacobians together: 128 MB in float64."""

STRIDE = 1e-6
"""Of a forward difference: its error is some 1e-6, and so is what a step leaves of the last."""


@dataclass(frozen=True)
class Chord(Solver):
    """``s ← s + (I − J)⁻¹ (f(s) − s)`` with the Jacobian at the start, by differences of ``f``.

    Where the map is linear, or the start close, every step takes the error down by orders of
    magnitude however slowly the map itself contracts. What it arrives at is judged by the residual,
    as with any solver: a poor Jacobian costs steps and no accuracy. Samples must not depend on each
    other.
    """

    def init(self, system: Dynamics, state: State) -> tuple[Tensor, Tensor]:
        image = _flat(system.map(state))
        columns = []
        for part, tensor in enumerate(state):
            for neuron in range(tensor[0].numel()):
                moved = [s.clone() for s in state]
                moved[part].view(len(tensor), -1)[:, neuron] += STRIDE
                columns.append((_flat(system.map(tuple(moved))) - image) / STRIDE)
        jacobian = torch.stack(columns, 2)
        one = torch.eye(jacobian.shape[1], dtype=jacobian.dtype, device=jacobian.device)
        # A singular one gives what is not finite, which the loop calls diverged.
        lu, pivots, _ = torch.linalg.lu_factor_ex(one - jacobian)
        return lu, pivots

    def step(
        self, system: Dynamics, state: State, image: State, memory: tuple[Tensor, Tensor]
    ) -> tuple[State, tuple[Tensor, Tensor]]:
        gap = (_flat(image) - _flat(state)).unsqueeze(2)
        move = torch.linalg.lu_solve(*memory, gap).squeeze(2)
        parts = move.split([s[0].numel() for s in state], 1)
        moved = (s + m.reshape(s.shape) for s, m in zip(state, parts, strict=True))
        return tuple(moved), memory


def fits(state: State) -> bool:
    """Whether the Jacobians of these samples are real and small enough to be written down."""
    neurons = sum(s[0].numel() for s in state)
    real = not any(s.is_complex() for s in state)
    return real and len(state[0]) * neurons**2 <= ENTRIES


def _flat(state: State) -> Tensor:
    return torch.cat([s.flatten(1) for s in state], 1)
