"""Train networks without backpropagation: equilibrium propagation behind ``loss.backward()``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
        CompletionNetwork,
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
        project_,
    )
    from toreqprop.solution import Solution, Status
    from toreqprop.solvers import Anderson, FixedPoint, GaussSeidel, GradientDescent, Trace
    from toreqprop.zoo import load

__version__ = "0.2.0"

__all__ = [
    "Anderson",
    "AveragePooling",
    "BackpropConvNet",
    "BackpropMLP",
    "Block",
    "CenteredEP",
    "Certificate",
    "CompletionNetwork",
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
    "load",
    "nudged_backward",
    "nudged_gradients",
    "project_",
]

_HOMES = {
    "certificate": "Certificate certify",
    "energies": "AveragePooling MaxPooling SoftPooling",
    "errors": (
        "ConvergenceError ConvergenceWarning InvalidInputError TorEqPropError UnsupportedModelError"
    ),
    "gradients": (
        "CenteredEP ContinualEP ContrastiveLearning CoupledLearning HolomorphicEP "
        "ImplicitGradient OneSidedEP RandomSignEP RecurrentBackprop UnrolledGradient "
        "VectorFieldEP"
    ),
    "models": (
        "BackpropConvNet BackpropMLP Block CompletionNetwork ConvertedNetwork EquilibriumMap "
        "EquilibriumModel EquilibriumTransformer HopfieldConvNet HopfieldMLP LoopedMLP Residual "
        "ResistiveMLP convert nudged_backward nudged_gradients project_"
    ),
    "solution": "Solution Status",
    "solvers": "Anderson FixedPoint GaussSeidel GradientDescent Trace",
    "zoo": "load",
}
"""Where every name is defined: read when it is first asked for, as PyTorch takes seconds."""

_MODULES = frozenset(
    {
        *_HOMES, "checkpoint", "equilibrium", "exporting", "hardware", "kernels", "plots",
        "sklearn", "tasks", "training",
    }
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"toreqprop.{name}")
    for home, names in _HOMES.items():
        if name in names.split():
            found = globals()[name] = getattr(import_module(f"toreqprop.{home}"), name)
            return found
    raise AttributeError(f"module 'toreqprop' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
