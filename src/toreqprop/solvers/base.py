"""One loop for every method: evaluate the map, measure the residual, ask for the next iterate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.energies.system import System, check_state, layer_norms, per_sample
from toreqprop.kernels.reference import ROUNDING_FLOOR
from toreqprop.solution import Solution, State, Status
from toreqprop.solvers.watch import Watch


@runtime_checkable
class Dynamics(Protocol):
    """What a solver iterates: one phase (`System`), two (`PairSystem`), or a linear adjoint."""

    @property
    def contraction(self) -> float | None:
        """A proven Lipschitz constant of the map in the Euclidean norm, or None."""

    @property
    def free(self) -> bool:
        """Whether there is no nudge: then sweeps start at the bottom, where the input is."""

    def layers(self, state: State) -> int:
        """How many layers a state has."""

    def preactivation(self, state: State) -> State:
        """``u(s)``."""

    def activate(self, preactivation: State) -> State:
        """``σ(u)``."""

    def deactivate(self, state: State) -> State:
        """``u`` with ``σ(u) = s``."""

    def map(self, state: State) -> State:
        """The fixed-point map."""

    def update(self, layers: Iterable[int], state: State) -> State:
        """The map for some layers alone."""

    def colours(self, state: State) -> tuple[tuple[int, ...], ...]:
        """Groups of layers that can be updated at once."""

    def energy(self, state: State) -> Tensor:
        """What the map descends, shape (batch,); raises where there is no such thing."""

    def sizes(self, image: State) -> tuple[Tensor, Tensor]:
        """(batch, parts): what each part's residual is relative to, and what is rounded in it."""

    def metric(self, image: State) -> Tensor:
        """(batch or 1, parts): what residuals are multiplied with where they are added up."""

    def hold(self, before: State, after: State, relative: Tensor, tol: float) -> State:
        """The next iterate, without what needs no moving: ``relative`` is (batch, parts)."""

    def error_bound(self, state: State) -> Tensor:
        """A proven distance to the equilibrium, shape (batch,); infinite where none is known."""


@dataclass(frozen=True, kw_only=True)
class Solver(ABC):
    """A method that proposes the next iterate; its memory is an argument and a return value.

    ``tol`` is the relative residual (`Solution.residual`) at which every layer of every sample has
    to arrive, ``max_steps`` the evaluations after which it stops anyway.
    """

    tol: float = 1e-3
    max_steps: int = 100

    plain: ClassVar[bool] = True
    """Whether `evaluate` is the plain map, whose contraction factor bounds the residual."""

    def __post_init__(self) -> None:
        checks.number("tol", self.tol, 0, above=True, typical="1e-3 to 1e-6")
        checks.whole_number("max_steps", self.max_steps, 1)

    def limited(self, tol: float | None = None, max_steps: int | None = None) -> Solver:
        """The same method with another tolerance; None leaves it as it is."""
        changes = {"tol": tol, "max_steps": max_steps}
        return replace(self, **{k: v for k, v in changes.items() if v is not None})  # type: ignore[arg-type]

    def evaluate(self, system: Dynamics, state: State) -> State:
        """A map with the same fixed points as ``f``, by default ``f`` itself."""
        return system.map(state)

    def init(self, system: Dynamics, state: State) -> Any:
        """The method's memory before the first step."""
        return None

    @abstractmethod
    def step(self, system: Dynamics, state: State, image: State, memory: Any) -> tuple[State, Any]:
        """The next iterate, given ``image = f(state)``, and the memory that goes with it."""

    def solve(
        self,
        system: Dynamics,
        start: State,
        *,
        trace: Trace | None = None,
        remember: bool = False,
    ) -> Solution:
        """The equilibrium from ``start``, by the loop of `solve`; a solver that finds equilibria by
        other means, such as a circuit simulator, overrides this."""
        return iterate(system, start, self, trace=trace, remember=remember)


@dataclass
class Trace:
    """What a relaxation did at each evaluation, for figures and tests; off unless passed in.

    ``states`` are the iterates, the start first, ``images`` what the map made of them; of two
    phases ``(*centers, *shifts)``.
    """

    residuals: list[Tensor] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    images: list[State] = field(default_factory=list)
    energies: list[Tensor] = field(default_factory=list)
    keep_states: bool = False
    keep_energies: bool = False

    def __post_init__(self) -> None:
        for name in ("residuals", "states", "images", "energies"):
            checks.instance(name, getattr(self, name), list, "leave it out")
        checks.flag("keep_states", self.keep_states)
        checks.flag("keep_energies", self.keep_energies)

    def record(self, system: Dynamics, state: State, image: State, residual: Tensor) -> None:
        self.residuals.append(residual.clone())
        if self.keep_states:
            self.states.append(tuple(s.clone() for s in state))
            self.images.append(tuple(s.clone() for s in image))
        if self.keep_energies:
            self.energies.append(system.energy(state))


def solve(
    system: Dynamics,
    start: State,
    solver: Solver,
    *,
    trace: Trace | None = None,
    remember: bool = False,
) -> Solution:
    """Relax ``system`` from ``start`` until every layer of every sample is within ``solver.tol``.

    The equilibrium, its residuals, and how it ended; see `Solver.solve`.
    """
    checks.instance("system", system, Dynamics, "use System.bind(field, x, params)")
    checks.instance("solver", solver, Solver, "use FixedPoint()")
    checks.instance("trace", trace, Trace, "use Trace()", optional=True)
    checks.flag("remember", remember)
    checks.tensors("start", start)
    if isinstance(system, System):
        check_state("start", start, system.initial_state())
    return iterate(system, start, solver, trace=trace, remember=remember)


@torch.no_grad()
def iterate(
    system: Dynamics,
    start: State,
    solver: Solver,
    *,
    trace: Trace | None = None,
    remember: bool = False,
) -> Solution:
    """The loop of `solve`, for callers that know their arguments.

    A sample that has converged is frozen at ``f(s)``: what happens to the rest of the batch no
    longer changes it. The last iterate's image is returned, whose residual is at most L times that
    of the iterate where one layer has a contraction factor L. ``remember`` keeps each sample's last
    iterate as the solution's memory. Where the steps are used up, the iterate that would have come
    next is held against the last but one: where they are the same, the relaxation is in a cycle.
    """
    before: State | None = None
    state, memory = start, solver.init(system, start)
    rounding = ROUNDING_FLOOR * torch.finfo(start[0].dtype).eps
    factor = system.contraction if solver.plain and system.layers(start) == 1 else None
    factor = 1.0 if factor is None else factor
    done = torch.zeros(start[0].shape[0], dtype=torch.bool, device=start[0].device)
    kept: tuple[State, Tensor, Tensor] | None = None
    watch = Watch(start[0], solver.max_steps, closely=trace is not None)
    for _ in range(solver.max_steps):
        image = solver.evaluate(system, state)
        gap = layer_norms(tuple(a - b for a, b in zip(image, state, strict=True)))
        scale, size = system.sizes(image)
        # Less than that of an infinite state is no small step.
        still = (gap <= rounding * size) & torch.isfinite(gap)
        relative = torch.where(still, 0.0, factor * gap / scale)
        if kept is not None:
            image = _where(kept[2], kept[0], image)
            relative = torch.where(kept[2].unsqueeze(1), kept[1], relative)
        if trace is not None:
            trace.record(system, state, image, relative.amax(1))
        done = done | (relative <= solver.tol).all(1)
        if watch.over(done, gap):
            break
        frozen = watch.frozen(done)
        if frozen is not None:
            kept = (image, relative, frozen)
        if watch.steps < solver.max_steps:
            before = state
            state, memory = solver.step(system, state, image, memory)
            state = system.hold(before, state, relative, solver.tol)
            if frozen is not None:
                state = _where(frozen, before, state)
    layer, status = None, watch.status
    if status is Status.MAX_STEPS and before is not None:
        following, _ = solver.step(system, state, image, memory)
        if swings(before, state, following, ~done):
            status = Status.CYCLING
    if status is not Status.CONVERGED:
        layer = int(relative.nan_to_num(torch.inf).amax(0).argmax()) % system.layers(image)
    result = image
    return Solution(
        image, watch.steps, relative.amax(1), status, layer=layer, memory=state if remember else (),
        bound=lambda: system.error_bound(result),
    )  # fmt: skip


def swings(before: State, state: State, after: State, restless: Tensor) -> bool:
    """Whether one of the ``restless`` samples moved to and fro: three iterates, the third of which
    is where the first was, by less than `CYCLE` of how far the second was from it."""
    step = layer_norms(tuple(b - a for a, b in zip(state, after, strict=True))).norm(dim=1)
    two = layer_norms(tuple(b - a for a, b in zip(before, after, strict=True))).norm(dim=1)
    return bool((restless & (two <= CYCLE * step) & (step > 0)).any())


CYCLE = 0.01
"""A swing that dies out by a factor λ a step comes back to ``(1 − λ)/λ`` of its size."""


def _where(mask: Tensor, yes: State, no: State) -> State:
    return tuple(torch.where(per_sample(mask, a), a, b) for a, b in zip(yes, no, strict=True))


Hook = Callable[[str, Solution], None]
"""Called with the name of a phase ("free", "nudged", "adjoint") and its solution."""
