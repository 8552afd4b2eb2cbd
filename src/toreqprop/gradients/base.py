"""The contract of a gradient estimator, and what every EP estimator shares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from toreqprop.energies import Energy, Gradients, LinearNudge, Nudge, System, Wants
from toreqprop.errors import InvalidInputError, UnsupportedModelError
from toreqprop.solution import Solution, State
from toreqprop.solvers import Hook, Solver, Tolerance, solve


@dataclass(frozen=True)
class Problem:
    """All that a backward pass may use: the free system, how to relax it, what is asked for."""

    system: System
    solver: Solver
    tolerance: Tolerance
    wants: Wants
    report: Hook

    def relax(
        self, nudge: Nudge, start: State, scale: Tensor | None, *, relative_to_first: bool = False
    ) -> Solution:
        """A nudged phase from ``start``; its ending is reported to the model."""
        solution = solve(
            self.system.nudged(nudge),
            start,
            self.solver,
            self.tolerance,
            scale=scale,
            relative_to_first=relative_to_first,
        )
        self.report("nudged", solution)
        return solution


class GradientEstimator(ABC):
    """From a free equilibrium and a cotangent to the gradients of inputs and parameters.

    ``bias`` says in words how the estimate departs from the exact gradient, ``order`` the power of
    the nudge with which it does (None for oracles, which have no nudge), ``scale_free`` whether a
    loss times c gives the gradient times c, ``needs`` what it asks of the model, ``paper`` where it
    is from.
    """

    order: ClassVar[int | None] = None
    scale_free: ClassVar[bool] = True
    bias: ClassVar[str] = "exact"
    needs: ClassVar[str] = "any model"
    paper: ClassVar[str] = ""

    @property
    def betas(self) -> tuple[float, float] | None:
        """(β₁, β₂) where the estimate is ``[∂E/∂θ(s_β₁) − ∂E/∂θ(s_β₂)]/(β₁ − β₂)``, else None."""
        return None

    @abstractmethod
    def backward(self, problem: Problem, free: State, cotangent: State) -> Gradients:
        """``⟨cotangent, ds*/dθ⟩`` for x and every parameter in ``problem.wants``.

        Raises:
            UnsupportedModelError: the model cannot serve this estimator; names one that works.
        """

    def softer(self, factor: float) -> GradientEstimator:
        """The same estimator with a nudge ``factor`` times weaker: its bias falls as
        ``factor^order``, its rounding error grows. Oracles return themselves."""
        if not hasattr(self, "beta"):
            return self
        return replace(self, beta=self.beta / factor)  # type: ignore[type-var]


@dataclass(frozen=True)
class Phase:
    """A nudged equilibrium: ``Σ coefficient·∂(E + βC)/∂θ(state)`` over phases is ``≈ dC/dθ``."""

    coefficient: float | complex
    beta: float | complex
    state: State


MakeNudge = Callable[[float], Nudge]


class ContrastiveEstimator(GradientEstimator):
    """An estimator that contrasts the energy's parameter gradient between equilibria."""

    needs: ClassVar[str] = "an energy (symmetric weights)"

    @abstractmethod
    def phases(
        self, problem: Problem, free: State, nudge: MakeNudge, active: Tensor | None
    ) -> tuple[Phase, ...]:
        """Relax under ``nudge(β)`` for the β of this estimator; ``active`` (batch,) masks samples
        whose nudge is zero and need no relaxation."""

    def backward(self, problem: Problem, free: State, cotangent: State) -> Gradients:
        field = require_energy(self, problem.system)
        direction, scale = normalise(cotangent)
        phases = self.phases(
            problem, free, lambda beta: LinearNudge(direction, beta), active=scale > 0
        )
        weighted = tuple((phase.coefficient * scale, phase.state) for phase in phases)
        return field.energy_gradients(
            weighted, problem.system.x, problem.system.params, problem.wants
        )


def require_energy(estimator: GradientEstimator, system: System) -> Energy:
    """The system's energy, or an error that names an estimator for systems without one."""
    if not isinstance(system.field, Energy):
        raise UnsupportedModelError(
            f"{type(estimator).__name__} needs an energy, and {type(system.field).__name__} has "
            "none (its weights are not symmetric): use gradient=VectorFieldEP()."
        )
    return system.field


def normalise(cotangent: State) -> tuple[State, Tensor]:
    """Split a cotangent into a direction of RMS one per sample and its RMS, shape (batch,).

    This makes the nudge scale-free: without it a loss times 1e-6 gives a zero gradient in
    float32, and a batch mean nudges each sample by 1/batch of what it should.
    """
    flat = [g.flatten(1) for g in cotangent]
    peaks = torch.stack([g.abs().amax(1) for g in flat])
    peak = peaks.amax(0)
    # Dividing by the largest entry first keeps the squares of tiny cotangents from underflowing.
    safe = torch.where(peak > 0, peak, 1.0)
    unit = [g / safe[:, None] for g in flat]
    # The mean is over the layers the loss looks at, so that β means the same in deep networks.
    widths = peak.new_tensor([g.shape[1] for g in unit])
    count = ((peaks > 0) * widths[:, None]).sum(0).clamp_min(1)
    rms = torch.sqrt(torch.stack([(g * g).sum(1) for g in unit]).sum(0) / count)
    scale = torch.where(rms > 0, rms, 1.0)
    direction = tuple(
        (u / scale[:, None]).reshape(g.shape) for u, g in zip(unit, cotangent, strict=True)
    )
    return direction, peak * rms


def mirrored(center: State, state: State) -> State:
    """``2·center − state``: a start for the opposite phase, right to first order in β."""
    return tuple(2 * c - s for c, s in zip(center, state, strict=True))


def check_beta(beta: float) -> None:
    """Refuse a β that cannot nudge."""
    if not 0 < beta < float("inf"):
        raise InvalidInputError(f"beta must be > 0, got {beta}. Typical values: 0.01 to 0.5.")


def negligible(active: Tensor | None) -> Tensor | None:
    """Factors for the residual's scale that let samples without a nudge stop at once."""
    if active is None:
        return None
    return torch.where(active, 1.0, torch.inf)
