"""The two operations of equilibrium propagation: relax one phase, relax two under opposite nudges.

Everything that settles goes through them: models, estimators, certificates and pictures. They run
the general loop `solve`, or a kernel where one serves the system; that is decided here and nowhere
else.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.energies.activations import HIGHER, Sigmoid, Tanh
from toreqprop.energies.attention import AttentionEnergy, compiled_heads
from toreqprop.energies.dense import DenseEnergy
from toreqprop.energies.nudging import LinearNudge, Opposed, is_nothing
from toreqprop.energies.recurrent_map import MapEnergy
from toreqprop.energies.stack import StackEnergy
from toreqprop.energies.system import PairSystem, System, check_state, in_order
from toreqprop.kernels import Kernel, compiled_available, conjugate_kernel, get_kernel
from toreqprop.kernels.reference import ACTIVITY_FLOOR
from toreqprop.solution import Pushes, Solution, State, Status
from toreqprop.solvers.anderson import Anderson
from toreqprop.solvers.base import Solver, Trace, swings
from toreqprop.solvers.fixed_point import FixedPoint
from toreqprop.solvers.gauss_seidel import GaussSeidel
from toreqprop.solvers.passes import Passes
from toreqprop.tracing import all_plain, has_memory, is_plain, without_graph

if TYPE_CHECKING:
    from toreqprop.kernels.attention import Heads
    from toreqprop.kernels.cells import Cells
    from toreqprop.kernels.chain import Chain


@without_graph
def relax(
    system: System,
    solver: Solver,
    *,
    start: State | None = None,
    kernel: str | None = None,
    trace: Trace | None = None,
) -> Solution:
    """One phase, from ``start`` or the field's own initial state, until ``solver`` is content."""
    _check(system, solver, trace)
    named = get_kernel(kernel)
    if start is not None:
        check_state("start", start, system.initial_state())
    plain = trace is None and system.nudge is None
    specialist = _specialist(named, system, solver) if plain else None
    if specialist is not None:
        own = specialist.relax(start, tol=solver.tol, max_steps=solver.max_steps)
        if own is not None:
            # Plain iteration alone swings, and remembers the iterate that shows it.
            if own.status is Status.MAX_STEPS and type(solver) is FixedPoint:
                own = _named(own, system, solver.tol)
            reached = own.state
            return own.but(bound=lambda: system.error_bound(reached))
    chosen = _serving(named, system, solver) if plain else None
    if chosen is None:
        begin = system.initial_state() if start is None else start
        # Nudged phases of one layer go on from its last iterate, as a kernel's do.
        return solver.solve(system, begin, trace=trace, remember=len(begin) == 1)
    found = chosen.relax(
        system.params[2], system.drive[0], None if start is None else start[0],
        tol=solver.tol, max_steps=solver.max_steps, contraction=system.contraction,
    )  # fmt: skip
    if found.status is Status.MAX_STEPS and type(solver) is FixedPoint:
        found = _named(found, system, solver.tol)
    return found.but(bound=lambda: system.error_bound(found.state))


def _named(found: Solution, system: System, tol: float) -> Solution:
    """What a kernel ran out of steps with, called a cycle where it is one: one more evaluation is
    held against its last iterate."""
    last, following = found.memory[:1], system.map(found.state)
    cycle = swings(last, found.state, following, found.residual > tol)
    return found.but(status=Status.CYCLING) if cycle else found


@without_graph
def relax_pair(
    system: System,
    nudge: Opposed,
    solver: Solver,
    free: State,
    *,
    memory: tuple[Tensor, ...] = (),
    kernel: str | None = None,
    trace: Trace | None = None,
) -> Solution:
    """Two phases under opposite nudges, as center ± shift, from the free equilibrium.

    ``memory`` is that of the free phase's solution. Beyond convergence it is checked that the
    shift is more than rounding in every layer, and that the two phases are mirror images as far as
    their difference is to be a derivative (where the nudges are constant and opposite).
    """
    _check(system, solver, trace)
    named = get_kernel(kernel)
    checks.tensors("free", free)
    checks.tensors("memory", memory, least=0)
    checks.instance("nudge", nudge, Opposed, "use Opposed(LinearNudge(direction, beta))")
    both = checks.unchecked(PairSystem, system=system, nudge=nudge)
    opposite = trace is None and nudge.mirrored and nudge.asymmetry is None
    specialist = _specialist(named, system, solver) if opposite else None
    if specialist is not None:
        own = specialist.relax_pair(
            _pushes(system, nudge), free, memory, tol=solver.tol, max_steps=solver.max_steps
        )
        if own is not None:
            phases = (*own.state, *own.shift)
            own = own.but(bound=lambda: both.error_bound(phases))
            return checked(own, both, free, solver.tol)
    chosen = _serving(named, system, solver) if trace is None and len(memory) == 2 else None
    constant = None if chosen is None else _constant_push(nudge)
    if chosen is not None and constant is not None:
        direction, mean, half = constant
        found = chosen.relax_pair(
            system.params[2],
            system.drive[0] - mean * direction if mean else system.drive[0],
            direction,
            (memory[0], memory[1]),
            tol=solver.tol,
            max_steps=solver.max_steps,
            contraction=system.contraction,
            strength=half,
            image=None if mean else free[0].detach(),
        )
        bound = (*found.state, *found.shift)
        found = found.but(bound=lambda: both.error_bound(bound))
    else:
        begin = memory if len(memory) == 1 else free
        found = solver.solve(both, both.start(begin), trace=trace)
        count = len(free)
        found = found.but(state=found.state[:count], shift=found.state[count:])
    return checked(found, both, free, solver.tol)


def _check(system: System, solver: Solver, trace: Trace | None) -> None:
    # An abstract class takes its time to answer ``isinstance``.
    if type(system) is System and Solver in type(solver).__mro__ and trace is None:
        return
    checks.instance("system", system, System, "use System.bind(field, x, params)")
    checks.instance("solver", solver, Solver, "use FixedPoint()")
    checks.instance("trace", trace, Trace, "use Trace()", optional=True)


def _serving(chosen: Kernel | None, system: System, solver: Solver) -> Kernel | None:
    """The kernel, where the case is its own: one dense tanh layer, plain iteration, or its
    extrapolation by compiled code, the CPU."""
    extrapolates = is_extrapolation(solver)
    if extrapolates and chosen is not None:
        chosen = conjugate_kernel() if chosen.name == "numba" else None
    if (
        chosen is None
        or not (extrapolates or (type(solver) is FixedPoint and solver.damping == 1))
        or type(system.field) is not DenseEnergy
        or type(system.field.activation) is not Tanh
        or not system.drive[0].is_cpu
        or system.drive[0].dtype not in SERVED_DTYPES
        or not has_memory(system.drive[0])
    ):
        return None
    return chosen


class Specialist(Protocol):
    """Code that relaxes systems of one kind by one kind of solver, faster than the loop for all.

    Either operation may return None where it did not get to the end: the general path then does,
    or says why it cannot.
    """

    def relax(self, start: State | None, *, tol: float, max_steps: int) -> Solution | None:
        """One phase without a nudge."""

    def relax_pair(
        self,
        pushes: Pushes,
        free: State,
        memory: tuple[Tensor, ...],
        *,
        tol: float,
        max_steps: int,
    ) -> Solution | None:
        """Both phases under opposite pushes of preactivations, from the free equilibrium."""


def _specialist(kernel: Kernel | None, system: System, solver: Solver) -> Specialist | None:
    """Who serves the system, if anybody does."""
    for find in (_chain, _passes, _heads, _cells):
        found = find(kernel, system, solver)
        if found is not None:
            return found
    return None


def _chain(kernel: Kernel | None, system: System, solver: Solver) -> Chain | None:
    """The stack as compiled code takes it, where it serves: dense tanh layers, passes down and up,
    the CPU."""
    memory, field = memory_of_passes(solver), system.field
    if memory is None:
        return None
    if kernel is None or not compiled_available() or type(field) is not StackEnergy:
        return None
    if not field.is_dense or not all_plain(system.drive):
        return None
    drive, *upper = [t.contiguous() for t in system.drive]
    return checks.unchecked(
        _chain_class(),
        drive=drive.detach(),
        weights=tuple(upper[0::2]),
        biases=tuple(upper[1::2]),
        feedback=float(field.feedback),
        memory=memory,
    )


@cache
def _chain_class() -> type[Chain]:
    """Imported where Numba is installed: asking for it at every step would show."""
    from toreqprop.kernels.chain import Chain

    return Chain


def _passes(kernel: Kernel | None, system: System, solver: Solver) -> Passes | None:
    """The stack as passes take it, where the solver is passes and they serve it: with a memory all
    but matrices, which have compiled code, and whose general path is its reference."""
    memory, field = memory_of_passes(solver), system.field
    if memory is None or not isinstance(field, StackEnergy) or (memory and field.of_matrices):
        return None
    return Passes.of(system, kernel is not None, memory > 0)


def memory_of_passes(solver: Solver) -> int | None:
    """How many earlier passes the solver looks at, two at most; None where it makes none."""
    if type(solver) is FixedPoint:
        return None
    memory, passes = (solver.memory, solver.inner) if isinstance(solver, Anderson) else (0, solver)
    symmetric = isinstance(passes, GaussSeidel) and passes.order == "symmetric"
    return memory if symmetric and memory <= 2 else None


def is_extrapolation(solver: Solver) -> bool:
    """Whether a solver extrapolates plain iteration from two iterates at most."""
    # Concrete classes are not subclassed, and asking for the type is what costs least.
    return type(solver) is Anderson and solver.inner is None and solver.memory <= 2


def _heads(kernel: Kernel | None, system: System, solver: Solver) -> Heads | None:
    """The attention as compiled code takes it, where it serves: one tanh layer with an energy,
    extrapolation from two iterates at most, the CPU."""
    if not (isinstance(solver, Anderson) and is_extrapolation(solver)):
        return None
    field = system.field
    if not (type(field) is AttentionEnergy and field.activation == Tanh()):
        return None
    if kernel is None:
        return None
    return compiled_heads(system.drive, solver.memory, system.contraction)


def _cells(kernel: Kernel | None, system: System, solver: Solver) -> Cells | None:
    """The map as compiled code takes it, where it serves: sigmoid units, damped iteration, the
    CPU."""
    if type(solver) is not FixedPoint:
        return None
    field = system.field
    if not (type(field) is MapEnergy and field.activation == Sigmoid()):
        return None
    kernels = system.params[2]
    if kernel is None or not compiled_available() or not all_plain((system.drive[0], kernels)):
        return None
    factor = system.contraction if solver.plain else None
    return checks.unchecked(
        _cells_class(),
        drive=system.drive[0].detach(),
        kernel=kernels,
        begin=field.start,
        damping=solver.damping,
        contraction=1.0 if factor is None else factor,
    )


@cache
def _cells_class() -> type[Cells]:
    """Imported where Numba is installed."""
    from toreqprop.kernels.cells import Cells

    return Cells


def _pushes(system: System, nudge: Opposed) -> Pushes:
    """Half the difference of opposite forces on each layer's preactivation, where there is any, as
    a direction and its factor."""
    beta, temperature = nudge.up.beta, system.field.temperature  # type: ignore[attr-defined]
    return [
        None if is_nothing(direction) else (direction, beta / temperature(layer))
        for layer, direction in enumerate(nudge.up.direction)  # type: ignore[attr-defined]
    ]


SERVED_DTYPES = (torch.float32, torch.float64)


def _constant_push(nudge: Opposed) -> tuple[Tensor, float, float] | None:
    """Direction, mean and half difference of both forces on one layer, if constant."""
    if nudge.asymmetry is not None or not isinstance(nudge.up, LinearNudge):
        return None
    if not (nudge.down is None or isinstance(nudge.down, LinearNudge)):
        return None
    one, two = nudge.up.beta, 0.0 if nudge.down is None else nudge.down.beta
    if isinstance(one, complex) or isinstance(two, complex):
        return None
    return nudge.up.direction[0], 0.5 * (one + two), 0.5 * (one - two)


def checked(found: Solution, both: PairSystem, free: State, tol: float) -> Solution:
    """The solution, with what is wrong with its shift as a status."""
    if found.status is not Status.CONVERGED:
        return found
    changes = found.changes or tuple(map(_change, found.state, free, found.shift))
    layer = _unresolved(found, both, [shift for _, shift in changes])
    if layer is not None:
        return found.but(status=Status.UNRESOLVED, layer=layer)
    if both.nudge.mirrored:
        layer = _lopsided(found, free, changes, tol)
        if layer is not None:
            return found.but(status=Status.TOO_STRONG, layer=layer)
    return found


def unquestioned(
    changes: Sequence[tuple[float, float]], batch: int, shapes: Sequence[Any], dtype: torch.dtype
) -> bool:
    """Whether norms alone say of a shift that was carried exactly, in layers of these shapes, that
    `checked` finds nothing wrong with it."""
    least = _resolution(dtype)[0]
    return all(
        moved > least * (batch * math.prod(shape)) ** 0.5 and drift <= LOPSIDED * moved
        for (drift, moved), shape in zip(changes, shapes, strict=True)
    )


def _change(center: Tensor, before: Tensor, shift: Tensor) -> tuple[float, float]:
    """Norms over the batch: how far the center moved, and the shift."""
    three = [in_order(t.detach()) for t in (center, before, shift)]
    alike = center.stride() == before.stride() and all(t.is_contiguous() for t in three)
    if compiled_available() and is_plain(center) and alike:
        from toreqprop.kernels.vectors import distances

        return distances(*(t.numpy() for t in three))
    return float(torch.dist(center, before)), float(torch.linalg.vector_norm(shift))


def _unresolved(found: Solution, both: PairSystem, moved: list[float]) -> int | None:
    """The first layer whose shift is lost: below the range of its dtype, or, where it was
    differenced, below the rounding of what it was the difference of."""
    least, exact = _resolution(found.state[0].dtype)
    for layer, (center, shift) in enumerate(zip(found.state, found.shift, strict=True)):
        lost = least
        if not both.system.field.pairs:
            lost = max(lost, _DIGITS * exact * float(center.abs().max()))
        # The norm is at most √n times the largest entry: mostly it says enough.
        if moved[layer] <= lost * shift.numel() ** 0.5 and 0 < float(shift.abs().max()) < lost:
            return layer
    return None


@cache
def _resolution(dtype: torch.dtype) -> tuple[float, float]:
    """The smallest number that has all its digits, and the rounding of what is differenced."""
    info = torch.finfo(dtype)
    return info.tiny / info.eps, torch.finfo(HIGHER.get(dtype, dtype)).eps


def _lopsided(
    found: Solution, free: State, changes: Sequence[tuple[float, float]], tol: float
) -> int | None:
    """The layer whose center was moved by more than `LOPSIDED` of its shift, over the batch.

    The two phases then are no mirror images: their difference is no derivative. What the free phase
    may have left undone is no fault of the nudge.
    """
    for layer, (drift, moved) in enumerate(changes):
        if drift <= LOPSIDED * moved:
            continue
        center, before = found.state[layer], free[layer]
        floor = ACTIVITY_FLOOR * center.numel() ** 0.5
        size = max(float(torch.linalg.vector_norm(before)), floor)
        if drift > LOPSIDED * moved + 10 * tol * size:
            return layer
    return None


LOPSIDED = 0.3
"""For smooth activations the bias of a centred estimate is about the square of this ratio."""

_DIGITS = 1e3
"""A difference must be this many roundings of its terms: three digits of a gradient."""
