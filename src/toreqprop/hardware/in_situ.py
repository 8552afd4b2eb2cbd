"""Training a resistive network in place: two nudged phases, a local rule, conductances in range."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor

from toreqprop.errors import ConvergenceError, InvalidInputError
from toreqprop.hardware.circuit_solution import CircuitSolution
from toreqprop.hardware.faults import Faults
from toreqprop.hardware.resistive import Conductances, ResistiveNetwork, conductance_gradients
from toreqprop.hardware.resistive_solvers import solve_circuit


class Simulator(Protocol):
    """Whatever finds operating points: ``solve_circuit``, or ``Ngspice().solve``."""

    def __call__(
        self,
        network: ResistiveNetwork,
        conductances: Conductances,
        x: Tensor,
        target: Tensor | None = None,
        beta: float | Tensor = 0.0,
        faults: Faults | None = None,
    ) -> CircuitSolution: ...


def nudged_phases(
    network: ResistiveNetwork,
    conductances: Conductances,
    x: Tensor,
    target: Tensor,
    beta: float,
    faults: Faults | None = None,
    solve: Simulator = solve_circuit,
) -> tuple[CircuitSolution, CircuitSolution]:
    """The operating points at +β and at −β (siemens), all in one call of the simulator.

    Raises:
        ConvergenceError: some point was not found; the message says what helps.
    """
    if not 0 < beta < math.inf:
        raise InvalidInputError(f"beta must be a conductance > 0 S, got {beta}. Typical: 1e-6")
    # The phases of a sample follow each other: in a sweep, each starts from the other.
    signs = torch.tensor([beta, -beta], dtype=x.dtype).repeat(len(x))
    twice, targets = x.repeat_interleave(2, 0), target.repeat_interleave(2, 0)
    both = solve(network, conductances, twice, targets, signs, faults)
    if not both.converged:
        raise ConvergenceError(both.status.value)
    return both.part(slice(0, None, 2)), both.part(slice(1, None, 2))


def nudged_gradients(
    network: ResistiveNetwork,
    conductances: Conductances,
    x: Tensor,
    target: Tensor,
    beta: float,
    faults: Faults | None = None,
    solve: Simulator = solve_circuit,
) -> Conductances:
    """``dC/dg`` of ``C = ½‖v_L − y‖²``, mean over samples, from the voltages of two phases alone.

    Faulty conductances count as what they are: the derivative is with respect to each one's
    actual value, as a circuit would measure it.
    """
    up, down = nudged_phases(network, conductances, x, target, beta, faults, solve)
    return conductance_gradients(network, up.phase, down.phase, beta)


def updated(
    conductances: Conductances,
    gradients: Conductances,
    rate: float,
    low: float = 1e-7,
    high: float = math.inf,
) -> Conductances:
    """``g − rate·dC/dg``, kept between ``low`` and ``high`` siemens; ``rate`` in S²/V²."""
    if not 0 <= low < high:
        raise InvalidInputError(f"the range must be 0 <= low < high, got {low} and {high}")
    pairs = zip(conductances, gradients, strict=True)
    return tuple((g - rate * slope).clamp(low, high) for g, slope in pairs)
