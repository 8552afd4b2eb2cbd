"""Residual against step of a trained model's relaxations, in the free and the nudged phase."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from toreqprop.models import EquilibriumModel
from toreqprop.plots import trace_phases
from toreqprop.plots.relaxation import residuals

SAMPLES = 256
FINE = 1e-6
"""Tolerance of the curves: finer than in training, so that they show the rate of convergence."""


def relaxation_curves(model: EquilibriumModel, x: Tensor, y: Tensor) -> dict[str, Any]:
    """The worst and the median residual at each step, over the first test samples.

    Free residuals are relative to the activity, nudged ones (towards lower cost) to the first
    nudged residual: what each phase's stopping rule looks at.
    """
    free, nudged, *_ = trace_phases(model, x[:SAMPLES], y[:SAMPLES], tol=FINE)
    return {
        "samples": min(SAMPLES, len(x)),
        "free": residuals(free.trace),
        "nudged": residuals(nudged.trace),
    }
