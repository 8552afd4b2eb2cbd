"""A model from the names and numbers of the command line."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from toreqprop.certificate import estimator_by_name
from toreqprop.checkpoint import NETWORKS
from toreqprop.errors import InvalidInputError
from toreqprop.gradients import GradientEstimator
from toreqprop.hardware.device_files import read_device
from toreqprop.models import MODELS, BackpropMLP, EquilibriumModel, on
from toreqprop.solvers import CIRCUIT_SOLVERS, SOLVERS, Solver


def estimator(name: str, beta: float | None) -> GradientEstimator:
    """The estimator of that name, with this strength of the nudge where one is given."""
    found = estimator_by_name(name)()
    if beta is None:
        return found
    if not hasattr(found, "beta"):
        raise InvalidInputError(f"The estimator {name!r} has no nudge to set with --beta.")
    return replace(found, beta=beta)  # type: ignore[type-var]


def solver(name: str) -> Solver:
    """The solver of that name."""
    known = SOLVERS | CIRCUIT_SOLVERS
    if name not in known:
        raise InvalidInputError(f"There is no solver {name!r}: choose one of {', '.join(known)}.")
    return known[name]()


def placed(net: nn.Module, file: Path, beta: float | None) -> EquilibriumModel:
    """The model on the chip that a file describes; a nudge that was given stays."""
    if not isinstance(net, EquilibriumModel):
        raise InvalidInputError("Only a network that settles can be put on a chip: choose another.")
    chip = on(read_device(file), net)
    if beta is not None:
        chip.gradient = net.gradient
    return chip


def check_network(name: str) -> None:
    """Refuse a name that is not registered."""
    if name not in NETWORKS:
        raise InvalidInputError(f"There is no model {name!r}: choose {', '.join(NETWORKS)}.")


def build(
    name: str, features: int, hidden: int, outputs: int, layers: int | None, options: dict[str, Any]
) -> nn.Module:
    """The untrained model; ``options`` left at None are the model's own defaults."""
    check_network(name)
    given = {key: value for key, value in options.items() if value is not None}
    cls = NETWORKS[name]
    known = inspect.signature(cls).parameters
    for key in given:
        if key not in known:
            raise InvalidInputError(f"A {name} model takes no --{key.replace('_', '-')}.")
    if cls is BackpropMLP:
        if layers not in (None, 2):
            raise InvalidInputError(f"A backprop model has two hidden layers, not {layers}.")
        return BackpropMLP(features, hidden, outputs)
    return MODELS[name].for_rows(features, hidden, outputs, layers=layers, **given)
