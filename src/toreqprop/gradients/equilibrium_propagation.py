"""Equilibrium propagation proper: one-sided, centred and random-sign contrasts of equilibria.

``dC/dθ ≈ (1/β)·[∂E/∂θ(s_β) − ∂E/∂θ(s_0)]`` and ``(1/2β)·[∂E/∂θ(s_β) − ∂E/∂θ(s_−β)]``.
β is in units of the normalised cotangent: β = 0.05 moves a preactivation by 0.05 on average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from toreqprop.gradients.base import (
    ContrastiveEstimator,
    MakeNudge,
    Phase,
    Problem,
    check_beta,
    mirrored,
    negligible,
)
from toreqprop.solution import State


@dataclass(frozen=True)
class OneSidedEP(ContrastiveEstimator):
    """Free against one nudged equilibrium: one nudged relaxation, bias O(β).

    ``negative=True`` nudges away from lower cost (−β): the same limit, the opposite bias.
    """

    beta: float = 0.05
    negative: bool = False
    order: ClassVar[int | None] = 1
    bias: ClassVar[str] = "O(β)"
    paper: ClassVar[str] = "Scellier & Bengio 2017"

    def __post_init__(self) -> None:
        check_beta(self.beta)

    @property
    def betas(self) -> tuple[float, float]:
        return (-self.beta if self.negative else self.beta), 0.0

    def phases(
        self, problem: Problem, free: State, nudge: MakeNudge, active: Tensor | None
    ) -> tuple[Phase, ...]:
        beta = -self.beta if self.negative else self.beta
        nudged = problem.relax(nudge(beta), free, negligible(active), relative_to_first=True)
        return Phase(1 / beta, beta, nudged.state), Phase(-1 / beta, 0.0, free)


@dataclass(frozen=True)
class CenteredEP(ContrastiveEstimator):
    """The equilibria at +β and −β: two nudged relaxations, bias O(β²).

    Errors that both phases share, such as a free phase that was not quite finished, cancel.
    """

    beta: float = 0.05
    order: ClassVar[int | None] = 2
    bias: ClassVar[str] = "O(β²)"
    paper: ClassVar[str] = "Laborieux et al. 2021"

    def __post_init__(self) -> None:
        check_beta(self.beta)

    @property
    def betas(self) -> tuple[float, float]:
        return self.beta, -self.beta

    def phases(
        self, problem: Problem, free: State, nudge: MakeNudge, active: Tensor | None
    ) -> tuple[Phase, ...]:
        up = problem.relax(nudge(self.beta), free, negligible(active), relative_to_first=True)
        down = problem.relax(nudge(-self.beta), mirrored(free, up.state), up.scale)
        weight = 0.5 / self.beta
        return Phase(weight, self.beta, up.state), Phase(-weight, -self.beta, down.state)


@dataclass(frozen=True)
class RandomSignEP(ContrastiveEstimator):
    """`OneSidedEP` with the sign of β drawn anew at every backward pass.

    One nudged relaxation; the O(β) biases of the two signs are opposite, so over many steps they
    average out. The sign comes from torch's global generator: `torch.manual_seed` reproduces it.
    """

    beta: float = 0.05
    order: ClassVar[int | None] = 1
    bias: ClassVar[str] = "O(β), O(β²) on average"
    paper: ClassVar[str] = "Laborieux et al. 2021"

    def __post_init__(self) -> None:
        check_beta(self.beta)

    def phases(
        self, problem: Problem, free: State, nudge: MakeNudge, active: Tensor | None
    ) -> tuple[Phase, ...]:
        negative = bool(torch.rand(()) < 0.5)
        return OneSidedEP(self.beta, negative).phases(problem, free, nudge, active)
