"""EP with the nudge removed: the negative control whose hidden weights must not move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from toreqprop.gradients.base import ContrastiveEstimator, MakeNudge, Phase, Problem, check_beta
from toreqprop.solution import State


@dataclass(frozen=True)
class UnnudgedEP(ContrastiveEstimator):
    """`CenteredEP` whose two phases relax without a force: equal equilibria, zero contrast.

    All else is kept, the division by 2β included. Both phases start from the free equilibrium, so
    what they contrast is exactly nothing and not the residual of an unfinished relaxation.
    """

    beta: float = 0.05
    bias: ClassVar[str] = "always zero"

    def __post_init__(self) -> None:
        check_beta(self.beta)

    def phases(
        self, problem: Problem, free: State, nudge: MakeNudge, active: Tensor | None
    ) -> tuple[Phase, ...]:
        up, down = (problem.relax(nudge(0.0), free, None) for _ in range(2))
        weight = 0.5 / self.beta
        return Phase(weight, self.beta, up.state), Phase(-weight, -self.beta, down.state)
