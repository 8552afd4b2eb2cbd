"""Backpropagation through the relaxation: an oracle, and the thing EP does without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from toreqprop import checks
from toreqprop.energies import Gradients, Params, System, VectorField
from toreqprop.gradients.base import GradientEstimator, Problem
from toreqprop.solution import State


@dataclass(frozen=True)
class UnrolledGradient(GradientEstimator):
    """Autograd through ``steps`` plain iterations; its memory grows with ``steps``.

    Not equilibrium propagation: it exists to check it.
    """

    steps: int = 30
    bias: ClassVar[str] = "O(Lˢᵗᵉᵖˢ)"
    paper: ClassVar[str] = "Werbos 1990"

    def __post_init__(self) -> None:
        checks.whole_number("steps", self.steps, 1)

    def trajectory(self, field: VectorField, x: Tensor, params: Params) -> State:
        """The state after ``steps`` iterations, with its graph."""
        system = System.bind(field, x, params)
        state = system.initial_state()
        for _ in range(self.steps):
            state = system.map(state)
        return state

    def backward(self, problem: Problem, free: State, cotangent: State) -> Gradients:
        raise NotImplementedError("autograd differentiates the trajectory; see `trajectory`")
