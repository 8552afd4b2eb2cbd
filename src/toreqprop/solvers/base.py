"""One loop for every method: evaluate the map, measure the residual, ask for the next iterate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from toreqprop.energies.system import neurons, per_sample, sample_norm
from toreqprop.errors import InvalidInputError
from toreqprop.solution import Solution, State, Status

ACTIVITY_FLOOR = 1e-3
"""Residuals are relative to ``‖f(s)‖``, but never to less than this activity per neuron: neurons
live in [-1, 1], and an equilibrium at zero would otherwise never count as reached."""

ROUNDING_FLOOR = 4.0
"""No residual below this many units of rounding of ``‖f(s)‖`` is asked for: each neuron's map
ends in one rounding of a preactivation and one of σ, on either side of the difference."""


class Dynamics(Protocol):
    """What a solver iterates: a `System`, or the linear adjoint of one."""

    @property
    def contraction(self) -> float | None:
        """A proven Lipschitz constant of the map in the Euclidean norm, or None."""

    def map(self, state: State) -> State:
        """The fixed-point map."""

    def energy(self, state: State) -> Tensor:
        """What the map descends, shape (batch,); raises where there is no such thing."""


class Solver(ABC):
    """A method that proposes the next iterate; its memory is an argument and a return value."""

    plain: ClassVar[bool] = True
    """Whether `evaluate` is the plain map, whose contraction factor bounds the error."""

    def evaluate(self, system: Dynamics, state: State) -> State:
        """A map with the same fixed points as ``f``, by default ``f`` itself."""
        return system.map(state)

    def init(self, system: Dynamics, state: State) -> Any:
        """The method's memory before the first step."""
        return None

    @abstractmethod
    def step(self, system: Dynamics, state: State, image: State, memory: Any) -> tuple[State, Any]:
        """The next iterate, given ``image = f(state)``, and the memory that goes with it."""


@dataclass(frozen=True)
class Tolerance:
    """When a relaxation stops: relative residual ``tol``, at most ``max_steps`` evaluations."""

    tol: float = 1e-3
    max_steps: int = 100

    def __post_init__(self) -> None:
        if not self.tol > 0:
            raise InvalidInputError(f"tol must be > 0, got {self.tol}. Typical: 1e-3 to 1e-6.")
        if self.max_steps < 1:
            raise InvalidInputError(
                f"max_steps must be >= 1, got {self.max_steps}. Typical: 30 to 200."
            )


@dataclass
class Trace:
    """What a relaxation did at each evaluation, for figures and tests; off unless passed in."""

    residuals: list[Tensor] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    energies: list[Tensor] = field(default_factory=list)
    keep_states: bool = False
    keep_energies: bool = False

    def record(self, system: Dynamics, state: State, residual: Tensor) -> None:
        self.residuals.append(residual.clone())
        if self.keep_states:
            self.states.append(tuple(s.clone() for s in state))
        if self.keep_energies:
            self.energies.append(system.energy(state))


@torch.no_grad()
def solve(
    system: Dynamics,
    start: State,
    solver: Solver,
    tolerance: Tolerance,
    *,
    scale: Tensor | None = None,
    relative_to_first: bool = False,
    trace: Trace | None = None,
) -> Solution:
    """Relax ``system`` from ``start`` until the worst sample's relative residual is below tol.

    A sample that has converged is frozen at ``f(s)``: what happens to the rest of the batch no
    longer changes it. ``scale`` (batch,) is what residuals are relative to, by default ``‖f(s)‖``;
    with ``relative_to_first`` it is the residual at ``start`` (times ``scale`` where given).
    The last iterate's image is returned, so with a contraction factor ``L`` the distance to the
    true equilibrium is at most ``L/(1 − L)·‖f(s) − s‖``, whatever the method.
    """
    state, memory = start, solver.init(system, start)
    floor = ACTIVITY_FLOOR * neurons(start) ** 0.5
    rounding = ROUNDING_FLOOR * torch.finfo(start[0].dtype).eps
    batch = start[0].shape[0]
    done = torch.zeros(batch, dtype=torch.bool, device=start[0].device)
    kept: tuple[State, Tensor, Tensor] | None = None
    status = Status.MAX_STEPS
    for steps in range(1, tolerance.max_steps + 1):
        image = solver.evaluate(system, state)
        gap = sample_norm(tuple(a - b for a, b in zip(image, state, strict=True)))
        size = sample_norm(image)
        if relative_to_first:
            scale = gap if scale is None else torch.where(torch.isinf(scale), scale, gap * scale)
            relative_to_first = False
        reference = size.clamp_min(floor) if scale is None else scale
        if kept is not None:
            image = _where(done, kept[0], image)
            gap = torch.where(done, kept[1], gap)
            reference = torch.where(done, kept[2], reference)
        if trace is not None:
            trace.record(system, state, gap / reference)
        done = done | (gap <= torch.maximum(tolerance.tol * reference, rounding * size))
        if bool(done.all()):
            status = Status.CONVERGED
            break
        if not bool(torch.isfinite(gap).all()):
            status = Status.DIVERGED
            break
        if bool(done.any()):
            kept = (image, gap, reference)
        if steps < tolerance.max_steps:
            state, memory = solver.step(system, state, image, memory)
            if kept is not None:
                state = _where(done, kept[0], state)
    residual = gap / reference.clamp_min(torch.finfo(gap.dtype).tiny)
    bound = _error_bound(system, image, gap, solver.plain)
    return Solution(image, steps, residual, status, bound, reference)


def _where(mask: Tensor, yes: State, no: State) -> State:
    return tuple(torch.where(per_sample(mask, a), a, b) for a, b in zip(yes, no, strict=True))


def _error_bound(system: Dynamics, state: State, gap: Tensor, plain: bool) -> Tensor:
    """``(L·‖f(s) − s‖ + rounding) / (1 − L)``, infinite without a contraction factor below one.

    Where another map than ``f`` was iterated, one evaluation of ``f`` at the result gives
    ``(‖f(s) − s‖ + rounding) / (1 − L)``. The rounding term covers the evaluation of ``f`` itself:
    n·eps·‖s‖ for n neurons, the size of the error of n inner products of length n (Higham and Mary
    2019, probabilistic form).
    """
    factor = system.contraction
    if factor is None or not factor < 1:
        return torch.full_like(gap, torch.inf)
    rounding = neurons(state) * torch.finfo(gap.dtype).eps * sample_norm(state)
    if plain:
        return (factor * gap + rounding) / (1 - factor)
    image = system.map(state)
    gap = sample_norm(tuple(a - b for a, b in zip(image, state, strict=True)))
    return (gap + rounding) / (1 - factor)


Hook = Callable[[str, Solution], None]
"""Called with the name of a phase ("free", "nudged", "adjoint") and its solution."""
