"""Continual EP: the weights move while the nudged phase is still relaxing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from toreqprop.energies import Gradients, LinearNudge, sample_norm
from toreqprop.errors import InvalidInputError
from toreqprop.gradients.base import (
    GradientEstimator,
    Problem,
    check_beta,
    normalise,
    require_energy,
)
from toreqprop.kernels.reference import NUDGE_SLACK
from toreqprop.solution import Solution, State, Status


@dataclass(frozen=True)
class ContinualEP(GradientEstimator):
    """``Δθ_t = −rate·(1/β)·[∂E/∂θ(s_{t+1}) − ∂E/∂θ(s_t)]`` at every step of the nudged phase.

    Local in time as well as in space: no equilibrium is stored. The gradient handed to the
    optimizer is the sum of the increments, so ``SGD(lr=rate)`` ends exactly where the weights were
    when the phase ended. With ``rate → 0`` this is `OneSidedEP`; a finite rate also moves the
    equilibrium, which adds a bias O(rate/β).
    """

    beta: float = 0.05
    rate: float = 1e-3
    order: ClassVar[int | None] = 1
    scale_free: ClassVar[bool] = False  # the weights move by rate times the gradient
    bias: ClassVar[str] = "O(β) + O(rate/β)"
    needs: ClassVar[str] = "an energy (symmetric weights)"
    paper: ClassVar[str] = "Ernoult et al. 2020"

    def __post_init__(self) -> None:
        check_beta(self.beta)
        if not 0 <= self.rate < float("inf"):
            raise InvalidInputError(f"rate must be >= 0, got {self.rate}. Typical: 1e-4 to 1e-2.")

    def backward(self, problem: Problem, free: State, cotangent: State) -> Gradients:
        require_energy(self, problem.system)
        direction, scale = normalise(cotangent)
        system = problem.system.nudged(LinearNudge(direction, self.beta))
        total: list[Tensor | None] = [None] * len(problem.wants)
        state, weight = free, scale / self.beta
        first = torch.full_like(scale, torch.inf)
        status, limit, steps = Status.MAX_STEPS, problem.tolerance, 0
        while status is Status.MAX_STEPS and steps < limit.max_steps:
            image = system.map(state)
            gap = sample_norm(tuple(a - b for a, b in zip(image, state, strict=True)))
            steps += 1
            if steps == 1:
                first = torch.where(scale > 0, NUDGE_SLACK * gap, torch.inf)
            increment = system.field.energy_gradients(  # type: ignore[attr-defined]
                ((weight, image), (-weight, state)), system.x, system.params, problem.wants
            )
            total = [_add(t, i) for t, i in zip(total, increment, strict=True)]
            state = image
            rounding = 4 * torch.finfo(gap.dtype).eps * sample_norm(image)
            if bool((gap <= torch.maximum(limit.tol * first, rounding)).all()):
                status = Status.CONVERGED
            elif self.rate > 0:
                moved = tuple(
                    p if g is None else p - self.rate * g
                    for p, g in zip(system.params, increment[1:], strict=True)
                )
                drive = system.field.prepare(system.x, moved)
                system = replace(system, params=moved, drive=drive)
        unbounded = torch.full_like(gap, torch.inf)
        problem.report("nudged", Solution(state, steps, gap / first, status, unbounded, first))
        return tuple(total)

    def softer(self, factor: float) -> ContinualEP:
        return replace(self, beta=self.beta / factor, rate=self.rate / factor**2)


def _add(total: Tensor | None, increment: Tensor | None) -> Tensor | None:
    if total is None or increment is None:
        return increment
    return total + increment
