"""Gradient estimators and oracles. A new one is one file and one line in ``ESTIMATORS``."""

from __future__ import annotations

from toreqprop.gradients.base import ContrastiveEstimator, GradientEstimator, Phase, Problem
from toreqprop.gradients.equilibrium_propagation import CenteredEP, OneSidedEP
from toreqprop.gradients.implicit import ImplicitGradient
from toreqprop.gradients.unrolled import UnrolledGradient

ESTIMATORS: dict[str, type[GradientEstimator]] = {
    "one_sided": OneSidedEP,
    "centered": CenteredEP,
    "implicit": ImplicitGradient,
    "unrolled": UnrolledGradient,
}

__all__ = [
    "ESTIMATORS",
    "CenteredEP",
    "ContrastiveEstimator",
    "GradientEstimator",
    "ImplicitGradient",
    "OneSidedEP",
    "Phase",
    "Problem",
    "UnrolledGradient",
]
