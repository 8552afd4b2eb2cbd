"""Holomorphic EP: the teaching signal oscillates in the complex plane."""

from __future__ import annotations

import cmath
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.energies import Gradients, LinearNudge, Opposed
from toreqprop.errors import InvalidInputError, UnsupportedModelError
from toreqprop.gradients.base import (
    GradientEstimator,
    Problem,
    as_pairs,
    check_beta,
    normalise,
    require_energy,
)
from toreqprop.solution import Solution, State, Status


@dataclass(frozen=True)
class HolomorphicEP(GradientEstimator):
    """``dC/dθ = (1/Nβ)·Σ_k e^{−2πik/N}·∂E/∂θ(s_{β_k})`` with ``β_k = β·e^{2πik/N}``.

    The equilibrium is an analytic function of β; its first Fourier coefficient on a circle is the
    derivative at zero, up to a bias O(β^N), as long as β lies inside the circle in which it is
    analytic: where the coefficient still depends on the number of points, it does not, and the
    phase is reported as `Status.TOO_STRONG`. Opposite β are relaxed as one pair, and equilibria at
    conjugate β are conjugate, so N points cost N/4 + 1 complex pairs.
    """

    beta: float = 0.05
    points: int = 8
    order: ClassVar[int | None] = 8
    bias: ClassVar[str] = "O(β^N)"
    needs: ClassVar[str] = "an energy with an analytic activation"
    paper: ClassVar[str] = "Laborieux & Zenke 2022"

    def __post_init__(self) -> None:
        check_beta(self.beta)
        checks.whole_number("points", self.points, 2)
        if self.points % 2:
            raise InvalidInputError(
                f"points must be even and >= 2, got {self.points}. Typical: 4 or 8."
            )

    def backward(self, problem: Problem, free: State, cotangent: State) -> Gradients:
        field = require_energy(self, problem.system)
        if not field.analytic:
            raise UnsupportedModelError(
                f"HolomorphicEP needs an energy that extends to complex numbers, and "
                f"{type(field).__name__} with {type(field.activation).__name__} does not: "
                "use gradient=CenteredEP()."
            )
        direction, scale = normalise(cotangent)
        dtype = torch.complex128 if free[0].dtype == torch.float64 else torch.complex64
        system = problem.system
        silent = replace(
            problem,
            report=lambda phase, solution: None,
            memory=(),
            system=replace(
                system,
                x=system.x.to(dtype),
                params=_to(system.params, dtype),
                drive=_to(system.drive, dtype),
            ),
        )
        start, teaching = _to(free, dtype), _to(direction, dtype)
        total: list[Tensor | None] = [None] * len(problem.wants)
        phases = []
        for k in range(self.points // 4 + 1):
            beta = self.beta * self._turn(k)
            opposed = Opposed(LinearNudge(teaching, beta), LinearNudge(teaching, -beta))
            found = silent.relax_pair(opposed, start)
            phases.append(found)
            coefficient = _coefficient(k, self.points) / self.beta
            # The conjugate pair, left out, has the conjugate part: real parts are all that count.
            parts = field.energy_gradients(
                as_pairs(found), coefficient * scale, system.x, system.params, problem.wants
            )
            total = [
                p if t is None or p is None else t + p for t, p in zip(total, parts, strict=True)
            ]
        for found in phases:
            problem.report("nudged", self._checked(found, phases))
        return tuple(total)

    def _turn(self, k: int) -> complex:
        return cmath.exp(2j * cmath.pi * k / self.points)

    def _checked(self, found: Solution, phases: list[Solution]) -> Solution:
        """The first coefficient from all points against that from every other one: their relative
        difference is the square root of the error that is left (both fall as powers of β)."""
        if not found.converged or self.points % 4:
            return found
        for layer in range(len(found.shift)):
            fine = _first_coefficient([p.shift[layer] for p in phases], self.points)
            every_other = [p.shift[layer] for p in phases[::2]]
            coarse = _first_coefficient(every_other, self.points // 2)
            size = float(torch.linalg.vector_norm(fine))
            apart = float(torch.linalg.vector_norm(fine - coarse))
            if apart > _LARGEST_CHANGE * size:
                return replace(found, status=Status.TOO_STRONG, layer=layer)
        return found


_LARGEST_CHANGE = 0.15
"""Squared, the error of the gradient that is left: two per cent."""


def _coefficient(k: int, points: int) -> complex:
    """Of the pair at ``β·e^{2πik/N}``, with that of its conjugate pair where it is another one."""
    twice = 1 if k == 0 or 4 * k == points else 2
    return twice * 2 / (points * cmath.exp(2j * cmath.pi * k / points))


def _first_coefficient(shifts: list[Tensor], points: int) -> Tensor:
    terms = [(_coefficient(k, points) * d).real for k, d in enumerate(shifts)]
    return torch.stack(terms).sum(0)


def _to(tensors: tuple[Tensor, ...], dtype: torch.dtype) -> tuple[Tensor, ...]:
    return tuple(t.to(dtype) for t in tensors)
