"""Holomorphic EP: the teaching signal oscillates in the complex plane."""

from __future__ import annotations

import cmath
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from toreqprop.energies import Gradients, LinearNudge
from toreqprop.errors import InvalidInputError, UnsupportedModelError
from toreqprop.gradients.base import (
    GradientEstimator,
    Problem,
    check_beta,
    negligible,
    normalise,
    require_energy,
)
from toreqprop.solution import State


@dataclass(frozen=True)
class HolomorphicEP(GradientEstimator):
    """``dC/dθ = (1/Nβ)·Σ_k e^{−2πik/N}·∂E/∂θ(s_{β_k})`` with ``β_k = β·e^{2πik/N}``.

    The equilibrium is an analytic function of β; its first Fourier coefficient on a circle is the
    derivative at zero, up to a bias O(β^N). Equilibria at conjugate β are conjugate, so N points
    cost N/2 + 1 complex relaxations.
    """

    beta: float = 0.2
    points: int = 8
    order: ClassVar[int | None] = 8
    bias: ClassVar[str] = "O(β^N)"
    needs: ClassVar[str] = "an energy with an analytic activation"
    paper: ClassVar[str] = "Laborieux & Zenke 2022"

    def __post_init__(self) -> None:
        check_beta(self.beta)
        if self.points < 2 or self.points % 2:
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
        in_complex = replace(
            problem,
            system=replace(
                system,
                x=system.x.to(dtype),
                params=_to(system.params, dtype),
                drive=_to(system.drive, dtype),
            ),
        )
        start, teaching = _to(free, dtype), _to(direction, dtype)
        weighted = []
        relative_to = negligible(scale > 0)
        for k in range(self.points // 2 + 1):
            turn = cmath.exp(2j * cmath.pi * k / self.points)
            nudge = LinearNudge(teaching, self.beta * turn)
            phase = in_complex.relax(nudge, start, relative_to, relative_to_first=k == 0)
            relative_to = phase.scale
            twice = 1 if k in (0, self.points // 2) else 2  # the conjugate point, left out
            coefficient = twice / (turn * self.points * self.beta)
            weighted.append((coefficient * scale, phase.state))
        return field.energy_gradients(tuple(weighted), system.x, system.params, problem.wants)


def _to(tensors: tuple[torch.Tensor, ...], dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    return tuple(t.to(dtype) for t in tensors)
