"""Block Gauss-Seidel sweeps for layered systems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from toreqprop import checks
from toreqprop.solution import State
from toreqprop.solvers.base import Dynamics, Solver


@dataclass(frozen=True)
class GaussSeidel(Solver):
    """Update every other layer at once, then the rest from the new values.

    ``order="sequential"`` goes through the layers one by one instead, upwards in a free phase and
    downwards in a nudged one: for the same work, information crosses all of them. "symmetric" goes
    down from the layer below the top and up again; dense tanh stacks have compiled code for it,
    which needs no more products for the two ways than for one.

    Given its neighbours, a layer's update ``s_l = σ(u_l)`` minimises the energy over that layer
    (or, where ``Φ`` is convex in it, a touching bound from above: attention, or a max pooling of
    states that are not negative), so the energy never increases, with or without contraction; and
    for the cost of one plain step information crosses two layers. In a nudged phase the sweep
    starts at the top, where the nudge arrives.
    """

    order: Literal["parity", "sequential", "symmetric"] = "parity"
    plain: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.choice("order", self.order, ("parity", "sequential", "symmetric"))

    def evaluate(self, system: Dynamics, state: State) -> State:
        for block in self._blocks(system, state):
            state = system.update(block, state)
        return state

    def _blocks(self, system: Dynamics, state: State) -> list[tuple[int, ...]]:
        """The layers that are updated at once, in turn."""
        blocks: list[tuple[int, ...]]
        if self.order == "symmetric":
            top = system.layers(state) - 1
            return [(layer,) for layer in (*range(top - 1, -1, -1), *range(min(top, 1), top + 1))]
        if self.order == "sequential":
            blocks = [(layer,) for layer in range(system.layers(state))]
        else:
            blocks = list(system.colours(state))
        if system.free:
            return blocks
        if self.order == "sequential":
            return blocks[::-1]
        top = system.layers(state) - 1
        return sorted(blocks, key=lambda block: top not in block)

    def step(
        self, system: Dynamics, state: State, image: State, memory: None
    ) -> tuple[State, None]:
        return image, None
