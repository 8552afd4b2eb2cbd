"""Block Gauss-Seidel sweeps for layered systems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from toreqprop.energies import Layerwise, System
from toreqprop.errors import UnsupportedModelError
from toreqprop.solution import State
from toreqprop.solvers.base import Dynamics, Solver


@dataclass(frozen=True)
class GaussSeidel(Solver):
    """Update every other layer at once, then the rest from the new values.

    Given its neighbours, a layer's update ``s_l = σ(u_l)`` minimises the energy over that layer
    exactly, so the energy never increases, with or without contraction; and for the cost of one
    plain step information crosses two layers. (Where a layer's ``u_l`` depends on ``s_l`` itself,
    as below a max pooling, this holds while the interaction is convex in that layer: for states
    that are not negative.) In a nudged phase the sweep starts at the top, where the nudge arrives.
    """

    plain: ClassVar[bool] = False

    def evaluate(self, system: Dynamics, state: State) -> State:
        if not isinstance(system, System) or not isinstance(system.field, Layerwise):
            raise UnsupportedModelError(
                "GaussSeidel sweeps need a layered model such as HopfieldMLP: "
                "use solver=FixedPoint()."
            )
        field, swept = system.field, list(state)
        first = 0 if system.nudge is None else (len(state) - 1) % 2
        for parity in (first, 1 - first):
            current = tuple(swept)
            force = None if system.nudge is None else system.nudge.force(current)
            for layer in range(parity, len(state), 2):
                u = field.layer_preactivation(layer, current, system.drive, system.params)
                swept[layer] = field.activate_layer(layer, u if force is None else u - force[layer])
        return tuple(swept)

    def step(
        self, system: Dynamics, state: State, image: State, memory: None
    ) -> tuple[State, None]:
        return image, None
