"""Continual EP: the weights move while the nudged phase is still relaxing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.energies import Gradients, LinearNudge
from toreqprop.energies.pairs import Pair
from toreqprop.energies.system import layer_norms
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
        checks.number("rate", self.rate, 0, typical="1e-4 to 1e-2")

    def backward(self, problem: Problem, free: State, cotangent: State) -> Gradients:
        field = require_energy(self, problem.system)
        direction, scale = normalise(cotangent)
        system = problem.system.nudged(LinearNudge(direction, self.beta))
        total: list[Tensor | None] = [None] * len(problem.wants)
        state, weight = free, 2 * scale / self.beta
        once, tol = problem.solver.limited(max_steps=1), problem.solver.tol
        status, steps = Status.MAX_STEPS, 0
        while status is Status.MAX_STEPS and steps < problem.solver.max_steps:
            image = once.solve(system, state).state
            steps += 1
            pairs = tuple(
                Pair(0.5 * (a + b), 0.5 * (a - b)) for a, b in zip(image, state, strict=True)
            )
            increment = field.energy_gradients(
                pairs, weight, system.x, system.params, problem.wants
            )
            total = [_add(t, i) for t, i in zip(total, increment, strict=True)]
            gap = 2 * layer_norms(tuple(p.shift for p in pairs))
            moved = layer_norms(tuple(a - b for a, b in zip(image, free, strict=True)))
            rounding = 4 * torch.finfo(image[0].dtype).eps * layer_norms(image)
            relative = torch.where(gap <= rounding, 0.0, gap / (NUDGE_SLACK * moved))
            state = image
            if bool((relative <= tol).all()):
                status = Status.CONVERGED
            elif self.rate > 0:
                changed = tuple(
                    p if g is None else p - self.rate * g
                    for p, g in zip(system.params, increment[1:], strict=True)
                )
                drive = system.field.prepare(system.x, changed)
                system = replace(system, params=changed, drive=drive)
        layer = None
        lost = ((moved > 0) & (moved < 1e3 * rounding)).any(0)
        if status is Status.CONVERGED and bool(lost.any()):
            # The states themselves are subtracted here: what they share costs digits.
            status, layer = Status.UNRESOLVED, int(lost.nonzero()[0])
        problem.report("nudged", Solution(state, steps, relative.amax(1), status, layer=layer))
        return tuple(total)

    def softer(self, factor: float) -> ContinualEP:
        return replace(self, beta=self.beta / factor, rate=self.rate / factor**2)


def _add(total: Tensor | None, increment: Tensor | None) -> Tensor | None:
    if total is None or increment is None:
        return increment
    return total + increment
