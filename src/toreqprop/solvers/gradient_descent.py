"""Gradient descent on the energy."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.energies.system import neurons, per_sample
from toreqprop.errors import UnsupportedModelError
from toreqprop.solution import State
from toreqprop.solvers.base import Dynamics, Solver


@dataclass(frozen=True)
class GradientDescent(Solver):
    """``a ← a − η·∂E/∂s`` with ``s = σ(a)``: the membrane potential follows the force.

    In these coordinates (mirror descent with the potential G) the states stay inside σ's range.
    With ``‖∂u/∂s‖ ≤ L`` any ``η ≤ 1/(1 + L)`` decreases the energy; where a step would raise it,
    that sample's η is halved until it does not, so the energy never increases.
    """

    step_size: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.between("step_size", self.step_size, 0, 1)

    def init(self, system: Dynamics, state: State) -> tuple[State, Tensor, Tensor]:
        if any(s.is_complex() for s in state):
            raise UnsupportedModelError(
                "A complex energy cannot be descended: use solver=FixedPoint() or Anderson()."
            )
        energy = system.energy(state)
        potential = system.deactivate(state)
        return potential, torch.full_like(energy, self.step_size), energy

    def step(
        self, system: Dynamics, state: State, image: State, memory: tuple[State, Tensor, Tensor]
    ) -> tuple[State, tuple[State, Tensor, Tensor]]:
        potential, rate, energy = memory
        descent = tuple(u - a for u, a in zip(system.preactivation(state), potential, strict=True))
        for _ in range(_HALVINGS):
            proposal = tuple(
                torch.add(a, per_sample(rate, a) * d)
                for a, d in zip(potential, descent, strict=True)
            )
            new_state = system.activate(proposal)
            new_energy = system.energy(new_state)
            # Differences below the rounding of a sum over all neurons carry no information.
            noise = torch.finfo(energy.dtype).eps * neurons(state) * (1 + energy.abs())
            rose = ~(new_energy <= energy + noise)
            if not bool(rose.any()):
                break
            rate = torch.where(rose, 0.5 * rate, rate)
        return new_state, (proposal, rate, new_energy)


_HALVINGS = 30
"""Enough to shrink a step by 1e9: no smooth energy needs more."""
