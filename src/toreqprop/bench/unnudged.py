"""EP with the nudge removed: the negative control whose hidden weights must not move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from toreqprop.energies import LinearNudge, Opposed
from toreqprop.gradients.base import ContrastiveEstimator, MakeNudge, Problem, check_beta
from toreqprop.solution import Solution, State


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

    @property
    def betas(self) -> tuple[float, float]:
        return self.beta, -self.beta

    def contrast(self, problem: Problem, free: State, nudge: MakeNudge) -> Solution:
        still = LinearNudge(tuple(0 * s for s in free), 0.0)
        return problem.relax_pair(Opposed(still, still), free)
