"""Block Gauss-Seidel sweeps for layered systems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from toreqprop.energies import Layerwise, System
from toreqprop.errors import InvalidInputError, UnsupportedModelError
from toreqprop.solution import State
from toreqprop.solvers.base import Dynamics, Solver


@dataclass(frozen=True)
class GaussSeidel(Solver):
    """Update every other layer at once, then the rest from the new values.

    ``order="sequential"`` goes through the layers one by one instead, upwards in a free phase and
    downwards in a nudged one: for the same work, information crosses all of them.

    Given its neighbours, a layer's update ``s_l = σ(u_l)`` minimises the energy over that layer
    (or, where ``Φ`` is convex in it, a touching bound from above: attention, or a max pooling of
    states that are not negative), so the energy never increases, with or without contraction; and
    for the cost of one plain step information crosses two layers. In a nudged phase the sweep
    starts at the top, where the nudge arrives.
    """

    order: Literal["parity", "sequential"] = "parity"
    plain: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.order not in ("parity", "sequential"):
            raise InvalidInputError(f'order must be "parity" or "sequential", got {self.order!r}.')

    def evaluate(self, system: Dynamics, state: State) -> State:
        if not isinstance(system, System) or not isinstance(system.field, Layerwise):
            raise UnsupportedModelError(
                "GaussSeidel sweeps need a layered model such as HopfieldMLP: "
                "use solver=FixedPoint()."
            )
        field, swept = system.field, list(state)
        for block in self._blocks(len(state), system.nudge is None):
            current = tuple(swept)
            force = None if system.nudge is None else system.nudge.force(current)
            for layer in block:
                u = field.layer_preactivation(layer, current, system.drive, system.params)
                swept[layer] = field.activate_layer(layer, u if force is None else u - force[layer])
        return tuple(swept)

    def _blocks(self, layers: int, free: bool) -> list[range]:
        """The layers that are updated at once, in turn."""
        if self.order == "sequential":
            order = range(layers) if free else range(layers - 1, -1, -1)
            return [range(layer, layer + 1) for layer in order]
        first = 0 if free else (layers - 1) % 2
        return [range(parity, layers, 2) for parity in (first, 1 - first)]

    def step(
        self, system: Dynamics, state: State, image: State, memory: None
    ) -> tuple[State, None]:
        return image, None
