"""Relaxation methods. A new one is one file and one line in ``SOLVERS``."""

from __future__ import annotations

from toreqprop.solvers.anderson import Anderson
from toreqprop.solvers.base import Hook, Solver, Trace, solve
from toreqprop.solvers.circuits import CIRCUIT_SOLVERS, BlockDescent, Newton
from toreqprop.solvers.device_phases import DevicePhases
from toreqprop.solvers.fixed_point import FixedPoint
from toreqprop.solvers.gauss_seidel import GaussSeidel
from toreqprop.solvers.gradient_descent import GradientDescent
from toreqprop.solvers.relaxation import relax, relax_pair

SOLVERS: dict[str, type[Solver]] = {
    "fixed_point": FixedPoint,
    "gradient_descent": GradientDescent,
    "anderson": Anderson,
    "gauss_seidel": GaussSeidel,
}

__all__ = [
    "CIRCUIT_SOLVERS",
    "SOLVERS",
    "Anderson",
    "BlockDescent",
    "DevicePhases",
    "FixedPoint",
    "GaussSeidel",
    "GradientDescent",
    "Hook",
    "Newton",
    "Solver",
    "Trace",
    "relax",
    "relax_pair",
    "solve",
]
