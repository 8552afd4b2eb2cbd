"""Contrastive and coupled learning: the output is clamped instead of pushed.

Both contrast the free equilibrium with one whose output is held by a spring. The output is what
the loss reads to first order, ``o(s) = ⟨ĝ, s − s*⟩/n`` with ``ĝ`` the normalised cotangent, so that
they serve any model and any loss; the clamp holds it at ``−η``. Because the clamped system pushes
back, the estimate is the gradient with each sample weighted by how stiffly it resists: the same
direction for one sample, not quite for a batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from toreqprop import checks
from toreqprop.energies import ClampNudge, Gradients, Opposed
from toreqprop.gradients.base import (
    GradientEstimator,
    Problem,
    as_pairs,
    normalise,
    require_energy,
)
from toreqprop.solution import State


@dataclass(frozen=True)
class ContrastiveLearning(GradientEstimator):
    """Free against fully clamped: the output is held a whole unit of activity away.

    ``stiffness`` is that of the clamp; the contrast is divided by the clamp's initial force, so a
    soft clamp gives the gradient itself.
    """

    stiffness: float = 0.25
    order: ClassVar[int | None] = 1
    bias: ClassVar[str] = "O(stiffness)"
    needs: ClassVar[str] = "an energy (symmetric weights)"
    paper: ClassVar[str] = "Movellan 1991; Baldi & Pineda 1991"

    def __post_init__(self) -> None:
        _check_positive("stiffness", self.stiffness)

    def backward(self, problem: Problem, free: State, cotangent: State) -> Gradients:
        return _contrast(self, problem, free, cotangent, self.stiffness, 1.0)

    def softer(self, factor: float) -> ContrastiveLearning:
        return replace(self, stiffness=self.stiffness / factor)


@dataclass(frozen=True)
class CoupledLearning(GradientEstimator):
    """Free against weakly clamped: the output is held a small step ``eta`` nearer its target."""

    eta: float = 0.1
    stiffness: float = 0.5
    order: ClassVar[int | None] = 1
    bias: ClassVar[str] = "O(stiffness)"
    needs: ClassVar[str] = "an energy (symmetric weights)"
    paper: ClassVar[str] = "Stern et al. 2021"

    def __post_init__(self) -> None:
        _check_positive("eta", self.eta)
        _check_positive("stiffness", self.stiffness)

    def backward(self, problem: Problem, free: State, cotangent: State) -> Gradients:
        return _contrast(self, problem, free, cotangent, self.stiffness, self.eta)

    def softer(self, factor: float) -> CoupledLearning:
        return replace(self, stiffness=self.stiffness / factor)


def _contrast(
    estimator: GradientEstimator,
    problem: Problem,
    free: State,
    cotangent: State,
    stiffness: float,
    eta: float,
) -> Gradients:
    field = require_energy(estimator, problem.system)
    direction, scale = normalise(cotangent)
    nudge = Opposed(ClampNudge(direction, free, stiffness, eta))
    found = problem.relax_pair(nudge, free)
    weight = 2 * scale / (stiffness * eta)
    system = problem.system
    return field.energy_gradients(as_pairs(found), weight, system.x, system.params, problem.wants)


def _check_positive(name: str, value: float) -> None:
    checks.number(name, value, 0, above=True, typical="0.05 to 1")
