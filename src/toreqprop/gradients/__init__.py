"""Gradient estimators and oracles. A new one is one file and one line in ``ESTIMATORS``."""

from __future__ import annotations

from toreqprop.gradients.base import ContrastiveEstimator, GradientEstimator, Problem
from toreqprop.gradients.clamped import ContrastiveLearning, CoupledLearning
from toreqprop.gradients.continual import ContinualEP
from toreqprop.gradients.equilibrium_propagation import CenteredEP, OneSidedEP, RandomSignEP
from toreqprop.gradients.holomorphic import HolomorphicEP
from toreqprop.gradients.implicit import ImplicitGradient, RecurrentBackprop
from toreqprop.gradients.unrolled import UnrolledGradient
from toreqprop.gradients.vector_field import VectorFieldEP

ESTIMATORS: dict[str, type[GradientEstimator]] = {
    "one_sided": OneSidedEP,
    "centered": CenteredEP,
    "random_sign": RandomSignEP,
    "holomorphic": HolomorphicEP,
    "continual": ContinualEP,
    "vector_field": VectorFieldEP,
    "contrastive": ContrastiveLearning,
    "coupled": CoupledLearning,
    "recurrent_backprop": RecurrentBackprop,
    "implicit": ImplicitGradient,
    "unrolled": UnrolledGradient,
}

__all__ = [
    "ESTIMATORS",
    "CenteredEP",
    "ContinualEP",
    "ContrastiveEstimator",
    "ContrastiveLearning",
    "CoupledLearning",
    "GradientEstimator",
    "HolomorphicEP",
    "ImplicitGradient",
    "OneSidedEP",
    "Problem",
    "RandomSignEP",
    "RecurrentBackprop",
    "UnrolledGradient",
    "VectorFieldEP",
]
