"""Faults of relaxations: where they stop, what they return, what they say of it."""

from __future__ import annotations

from typing import Any

from toreqprop.energies import PairSystem, System
from toreqprop.energies.activations import Tanh
from toreqprop.kernels import chain, compiled
from toreqprop.models import EquilibriumModel
from toreqprop.solution import Solution, Status
from toreqprop.solvers import base, relaxation
from toreqprop.solvers.anderson import Anderson
from toreqprop.solvers.base import Trace
from toreqprop.verify.mutations.mutation import Mutation, swapped, together

AREA = "solvers"


def _skipped(right: Any) -> Any:
    def iterate(system: Any, start: Any, solver: Any, **options: Any) -> Solution:
        kept = options.pop("remember", False)
        found = right(system, start, solver, remember=True, **options)
        return found.but(state=found.memory, memory=found.memory if kept else ())

    return iterate


def _content(right: Any) -> Any:
    def said(*given: Any, **options: Any) -> Solution:
        return right(*given, **options).but(status=Status.CONVERGED, layer=None)

    return said


def _early(factor: float) -> Any:
    def change(right: Any) -> Any:
        def iterate(system: Any, start: Any, solver: Any, **options: Any) -> Solution:
            return right(system, start, solver.limited(tol=factor * solver.tol), **options)

        return iterate

    return change


def _first_of_batch(right: Any) -> Any:
    def iterate(system: Any, start: Any, solver: Any, **options: Any) -> Solution:
        given = options.pop("trace", None)
        trace = Trace(keep_states=True)
        found = right(system, start, solver, trace=trace, **options)
        if given is not None or not found.converged:
            return found
        enough = [k for k, r in enumerate(trace.residuals) if bool((r <= solver.tol).any())]
        return found.but(state=trace.images[enough[0]], residual=trace.residuals[enough[0]])

    return iterate


def _smaller_residual(right: Any) -> Any:
    def iterate(*given: Any, **options: Any) -> Solution:
        found = right(*given, **options)
        return found.but(residual=0.5 * found.residual)

    return iterate


def _one_less(right: Any) -> Any:
    def iterate(system: Any, start: Any, solver: Any, **options: Any) -> Solution:
        fewer = solver.limited(max_steps=max(1, solver.max_steps - 1))
        return right(system, start, fewer, **options)

    return iterate


def _unmixed(right: Any) -> Any:
    """The proposal of Anderson's method, with the wrong sign of its correction."""

    def step(self: Any, system: Any, state: Any, image: Any, memory: Any) -> Any:
        proposed, kept = right(self, system, state, image, memory)
        return tuple(2 * f - p for f, p in zip(image, proposed, strict=True)), kept

    return step


MUTATIONS = (
    Mutation(
        "last step skipped", AREA, "the general loop returns its last iterate, not the image", 68,
        swapped(base, "iterate", _skipped),
    ),
    Mutation(
        "status always converged", AREA, "every relaxation says that it reached its tolerance", 68,
        together(
            swapped(base, "iterate", _content),
            swapped(relaxation, "checked", _content),
            swapped(compiled, "status", lambda right: lambda good, finite: Status.CONVERGED),
            swapped(chain, "status", lambda right: lambda good, finite: Status.CONVERGED),
        ),
    ),
    Mutation(
        "stops at twice the tolerance", AREA, "on the general path", 68,
        swapped(base, "iterate", _early(2.0)),
    ),
    Mutation(
        "stops at a hundred times the tolerance", AREA, "on the general path", 12,
        swapped(base, "iterate", _early(100.0)),
    ),
    Mutation(
        "one sample speaks for the batch", AREA, "a batch stops with its first sample", 68,
        swapped(base, "iterate", _first_of_batch),
    ),
    Mutation(
        "cycles are not named", AREA, "a relaxation that swings is told to take more steps", 7,
        together(
            swapped(base, "swings", lambda right: lambda *given: False),
            swapped(relaxation, "swings", lambda right: lambda *given: False),
        ),
    ),
    Mutation(
        "what is slow is called a cycle", AREA, "one step that comes back by half is enough", 7,
        swapped(base, "CYCLE", lambda right: 0.5),
    ),
    Mutation(
        "residual halved", AREA, "what a relaxation reports of itself", 68,
        swapped(base, "iterate", _smaller_residual),
    ),
    Mutation(
        "one step less than asked", AREA, "max_steps is not used up", 68,
        swapped(base, "iterate", _one_less),
    ),
    Mutation(
        "error bound halved", AREA, "the proven distance to the equilibrium", 68,
        swapped(System, "error_bound", lambda right: lambda self, state: 0.5 * right(self, state)),
    ),
    Mutation(
        "too strong a nudge passes", AREA, "nobody looks whether phases are mirror images", 68,
        swapped(relaxation, "_lopsided", lambda right: lambda *given: None),
    ),
    Mutation(
        "failures are not counted", AREA, "a model says nothing of relaxations that failed", 68,
        swapped(EquilibriumModel, "_report", lambda right: lambda self, phase, solution: None),
    ),
    Mutation(
        "center of two phases held", AREA, "it stays where the free phase left it", 67,
        swapped(
            PairSystem, "hold",
            lambda right: lambda self, before, after, relative, tol: (
                *before[: len(after) // 2], *after[len(after) // 2 :]
            ),
        ),
    ),
    Mutation(
        "Anderson's correction reversed", AREA, "it extrapolates the wrong way", 68,
        swapped(Anderson, "step", _unmixed),
    ),
    Mutation(
        "potential of tanh x0.9", AREA, "the energy is not the one that relaxations descend", 29,
        swapped(Tanh, "potential", lambda right: lambda self, state: 0.9 * right(self, state)),
    ),
)  # fmt: skip
