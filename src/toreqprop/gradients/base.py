"""The contract of a gradient estimator, and what every EP estimator shares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite
from typing import ClassVar

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.energies import (
    Energy,
    Gradients,
    LinearNudge,
    Nudge,
    Opposed,
    Pairs,
    System,
    Wants,
)
from toreqprop.energies.pairs import Pair, Phases
from toreqprop.errors import InvalidInputError, NotFiniteError, UnsupportedModelError
from toreqprop.kernels import compiled_available, get_kernel
from toreqprop.kernels.reference import LARGEST_PUSH
from toreqprop.solution import Solution, State
from toreqprop.solvers import Hook, Solver, relax_pair
from toreqprop.tracing import is_plain


@dataclass(frozen=True)
class Problem:
    """All that a backward pass may use: the free system, how to relax it, what is asked for.

    ``memory`` is what the free phase's solution knows already; ``kernel`` names the code to use.
    """

    system: System
    solver: Solver
    wants: Wants
    report: Hook
    kernel: str | None = None
    memory: tuple[Tensor, ...] = ()

    def __post_init__(self) -> None:
        checks.instance("system", self.system, System, "use System.bind(field, x, params)")
        checks.instance("solver", self.solver, Solver, "use FixedPoint()")
        checks.members("wants", self.wants, bool, "(False, True, True)")
        checks.function("report", self.report)
        get_kernel(self.kernel)  # refuses an unknown name
        checks.tensors("memory", self.memory, least=0)

    def relax_pair(self, nudge: Opposed, free: State) -> Solution:
        """Both nudged phases from the free equilibrium; their ending is reported to the model."""
        found = relax_pair(
            self.system, nudge, self.solver, free, memory=self.memory, kernel=self.kernel
        )
        self.report("nudged", found)
        return found


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
        checks.number("factor", factor, 0, above=True, typical="30")
        if not hasattr(self, "beta"):
            return self
        return replace(self, beta=self.beta / factor)  # type: ignore[type-var]


MakeNudge = Callable[[float], Nudge]


class ContrastiveEstimator(GradientEstimator):
    """``[∂E/∂θ(s_β₁) − ∂E/∂θ(s_β₂)]/(β₁ − β₂)`` for the two β of `betas`."""

    needs: ClassVar[str] = "an energy (symmetric weights)"

    @property
    @abstractmethod
    def betas(self) -> tuple[float, float]: ...

    def drawn(self) -> ContrastiveEstimator:
        """What one backward pass uses; itself, unless it leaves something to chance."""
        return self

    def tempered(self, found: Solution, direction: State, weight: Tensor) -> Tensor:
        """What each sample counts, (batch,): ``weight``, unless some are to count for less."""
        return weight

    @property
    def coefficient(self) -> float:
        """Of half the difference of the two gradients: ``2/(β₁ − β₂)``."""
        one, two = self.betas
        return 2 / (one - two)

    def contrast(self, problem: Problem, free: State, nudge: MakeNudge) -> Solution:
        """Both equilibria."""
        one, two = self.betas
        opposed = Opposed(nudge(one), nudge(two) if two != 0 else None)
        return problem.relax_pair(opposed, free)

    def backward(self, problem: Problem, free: State, cotangent: State) -> Gradients:
        field, system = require_energy(self, problem.system), problem.system
        drawn = self.drawn()
        coefficient = drawn.coefficient
        direction, weight, largest = measured(cotangent, coefficient)
        found = drawn.contrast(problem, free, lambda beta: LinearNudge(direction, beta))
        pairs, weight = as_pairs(found), self.tempered(found, direction, weight)
        if abs(coefficient) * largest <= torch.finfo(weight.dtype).max:
            return field.energy_gradients(pairs, weight, system.x, system.params, problem.wants)
        # One over β left the range of floats where the gradient, which is linear in it, may not.
        weight = self.tempered(found, direction, measured(cotangent)[1])
        parts = field.energy_gradients(pairs, weight, system.x, system.params, problem.wants)
        return tuple(None if g is None else coefficient * g for g in parts)


def as_pairs(found: Solution) -> Pairs:
    """Two equilibria, layer by layer, with what their relaxation knows."""
    return Phases(map(Pair, found.state, found.shift), found.memory)


def require_energy(estimator: GradientEstimator, system: System) -> Energy:
    """The system's energy, or an error that names an estimator for systems without one."""
    if not isinstance(system.field, Energy):
        raise UnsupportedModelError(
            f"{type(estimator).__name__} needs an energy, and {type(system.field).__name__} has "
            "none (its weights are not symmetric): use gradient=VectorFieldEP()."
        )
    return system.field


def require_finite(*finite: bool) -> None:
    """Refuse the slope of a loss that is not."""
    if not all(finite):
        raise NotFiniteError(
            "The slope of the loss has NaN or infinite entries: lower the learning rate, or look "
            "for a division by zero in the loss."
        )


def normalise(cotangent: State) -> tuple[State, Tensor]:
    """Split a cotangent into a direction of RMS one per sample and its size, shape (batch,).

    This makes the nudge scale-free: without it a loss times 1e-6 gives a zero gradient in
    float32, and a batch mean nudges each sample by 1/batch of what it should. Where one neuron
    would get more than `LARGEST_PUSH`, as in a cotangent that is concentrated on a few, the
    direction is that much shorter: no neuron is pushed by more than that many β.

    Raises:
        NotFiniteError: an entry is NaN or infinite.
    """
    return measured(cotangent)[:2]


def measured(cotangent: State, factor: float = 1.0) -> tuple[State, Tensor, float]:
    """`normalise`, the sizes times ``factor``; and the largest of them without it."""
    if len(cotangent) == 1 and compiled_available() and is_plain(cotangent[0]):
        from toreqprop.kernels.loops import normalise as compiled

        given = cotangent[0].contiguous()
        found, scale = torch.empty_like(given), given.new_empty(len(given))
        top = compiled(given.numpy(), LARGEST_PUSH, factor, found.numpy(), scale.numpy())
        require_finite(isfinite(top))
        return (found,), scale, top
    seen = [bool(g.any()) for g in cotangent] if len(cotangent) > 1 else [True]
    if 0 < sum(seen) < len(seen):
        # What the loss does not look at is zero, and stays so.
        both = list(zip(cotangent, seen, strict=True))
        directions, scales, largest = measured(tuple(g for g, s in both if s), factor)
        rest = iter(directions)
        return tuple(next(rest) if s else g for g, s in both), scales, largest
    flat = [g.flatten(1) for g in cotangent]
    norm = torch.linalg.vector_norm
    if len(flat) == 1:
        peak = norm(flat[0], torch.inf, dim=1)
        share: Tensor | float = flat[0].shape[1] ** -0.5
    else:
        peaks = torch.stack([norm(g, torch.inf, dim=1) for g in flat])
        peak = peaks.amax(0)
        # The mean is over the layers the loss looks at, so that β means the same in deep networks.
        widths = peak.new_tensor([g.shape[1] for g in flat])
        share = ((peaks > 0) * widths[:, None]).sum(0).clamp_min(1).rsqrt()
    # Dividing by the largest entry first keeps squares within the range of floats.
    safe = peak.clamp_min(torch.finfo(peak.dtype).tiny).unsqueeze(1)
    unit = [g / safe for g in flat]
    sizes = [norm(g, dim=1) for g in unit]
    total = sizes[0] if len(sizes) == 1 else norm(torch.stack(sizes), dim=0)
    size = (total * share).clamp_min(1 / LARGEST_PUSH)
    column = size.unsqueeze(1)
    direction = tuple((u / column).reshape(g.shape) for u, g in zip(unit, cotangent, strict=True))
    scale = peak * size
    top = float(scale.max())
    require_finite(isfinite(top))
    return direction, scale if factor == 1 else factor * scale, top


def check_beta(beta: float) -> None:
    """Refuse a β that cannot nudge."""
    checks.number("beta", beta, 0, above=True, typical="0.01 to 0.5")
    if beta < SMALLEST_BETA:
        raise InvalidInputError(
            f"beta must be >= {SMALLEST_BETA:g}, got {beta}: a weaker nudge leaves the range of "
            "float32. Typical: 0.01 to 0.5."
        )


SMALLEST_BETA = 1e-12
