"""The damped fixed-point iteration."""

from __future__ import annotations

from dataclasses import dataclass

from toreqprop import checks
from toreqprop.solution import State
from toreqprop.solvers.base import Dynamics, Solver


@dataclass(frozen=True)
class FixedPoint(Solver):
    """``s ← s + damping·(f(s) − s)``; undamped it is the plain iteration ``s ← f(s)``."""

    damping: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.between("damping", self.damping, 0, 1)

    def step(
        self, system: Dynamics, state: State, image: State, memory: None
    ) -> tuple[State, None]:
        if self.damping == 1.0:
            return image, None
        return tuple(s.lerp(f, self.damping) for s, f in zip(state, image, strict=True)), None
