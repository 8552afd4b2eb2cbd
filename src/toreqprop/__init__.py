"""Train networks without backpropagation: equilibrium propagation behind ``loss.backward()``."""

from __future__ import annotations

from toreqprop.errors import (
    ConvergenceError,
    ConvergenceWarning,
    InvalidInputError,
    TorEqPropError,
    UnsupportedModelError,
)
from toreqprop.gradients import (
    CenteredEP,
    ImplicitGradient,
    OneSidedEP,
    UnrolledGradient,
)
from toreqprop.models import (
    BackpropMLP,
    EquilibriumModel,
    LoopedMLP,
    nudged_backward,
    nudged_gradients,
)
from toreqprop.solution import Solution, Status
from toreqprop.solvers import Anderson, FixedPoint, GradientDescent, Trace

__version__ = "0.1.0"

__all__ = [
    "Anderson",
    "BackpropMLP",
    "CenteredEP",
    "ConvergenceError",
    "ConvergenceWarning",
    "EquilibriumModel",
    "FixedPoint",
    "GradientDescent",
    "ImplicitGradient",
    "InvalidInputError",
    "LoopedMLP",
    "OneSidedEP",
    "Solution",
    "Status",
    "TorEqPropError",
    "Trace",
    "UnrolledGradient",
    "UnsupportedModelError",
    "nudged_backward",
    "nudged_gradients",
]
