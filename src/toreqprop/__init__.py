"""Train networks without backpropagation: equilibrium propagation behind ``loss.backward()``."""

from __future__ import annotations

from toreqprop import hardware as hardware
from toreqprop.certificate import Certificate, certify
from toreqprop.energies import AveragePooling, MaxPooling, SoftPooling
from toreqprop.errors import (
    ConvergenceError,
    ConvergenceWarning,
    InvalidInputError,
    TorEqPropError,
    UnsupportedModelError,
)
from toreqprop.gradients import (
    CenteredEP,
    ContinualEP,
    ContrastiveLearning,
    CoupledLearning,
    HolomorphicEP,
    ImplicitGradient,
    OneSidedEP,
    RandomSignEP,
    RecurrentBackprop,
    UnrolledGradient,
    VectorFieldEP,
)
from toreqprop.models import (
    BackpropConvNet,
    BackpropMLP,
    Block,
    ConvertedNetwork,
    EquilibriumMap,
    EquilibriumModel,
    EquilibriumTransformer,
    HopfieldConvNet,
    HopfieldMLP,
    LoopedMLP,
    Residual,
    ResistiveMLP,
    convert,
    nudged_backward,
    nudged_gradients,
)
from toreqprop.solution import Solution, Status
from toreqprop.solvers import Anderson, FixedPoint, GaussSeidel, GradientDescent, Trace

__version__ = "0.1.0"

__all__ = [
    "Anderson",
    "AveragePooling",
    "BackpropConvNet",
    "BackpropMLP",
    "Block",
    "CenteredEP",
    "Certificate",
    "ContinualEP",
    "ContrastiveLearning",
    "ConvergenceError",
    "ConvergenceWarning",
    "ConvertedNetwork",
    "CoupledLearning",
    "EquilibriumMap",
    "EquilibriumModel",
    "EquilibriumTransformer",
    "FixedPoint",
    "GaussSeidel",
    "GradientDescent",
    "HolomorphicEP",
    "HopfieldConvNet",
    "HopfieldMLP",
    "ImplicitGradient",
    "InvalidInputError",
    "LoopedMLP",
    "MaxPooling",
    "OneSidedEP",
    "RandomSignEP",
    "RecurrentBackprop",
    "Residual",
    "ResistiveMLP",
    "SoftPooling",
    "Solution",
    "Status",
    "TorEqPropError",
    "Trace",
    "UnrolledGradient",
    "UnsupportedModelError",
    "VectorFieldEP",
    "certify",
    "convert",
    "nudged_backward",
    "nudged_gradients",
]
