"""Relaxations whose ending is known beforehand, and what they say of it."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.energies import DenseEnergy, System
from toreqprop.errors import ConvergenceError, ConvergenceWarning
from toreqprop.gradients import CenteredEP
from toreqprop.models import EquilibriumModel, HopfieldMLP, LoopedMLP
from toreqprop.solution import Solution
from toreqprop.solvers import Anderson, FixedPoint, GaussSeidel, Solver, solve
from toreqprop.verify.independent import Stack

FLOOR = 1e-3
"""Residuals are relative to a layer's activity, or to this much per neuron."""


@dataclass(frozen=True)
class Ending:
    """What a relaxation should say at its end, and what it said."""

    network: str
    what: str
    expected: str
    found: str

    @property
    def wrong(self) -> bool:
        return self.expected != self.found


NETWORKS: dict[str, tuple[str, Solver | None, str | None]] = {
    "looped, compiled": ("looped", None, "auto"),
    "looped, general": ("looped", FixedPoint(), None),
    "looped, Anderson": ("looped", Anderson(), None),
    "layered, compiled": ("layered", None, "auto"),
    "layered, sweeps": ("layered", GaussSeidel(), None),
    "layered, plain map": ("layered", FixedPoint(), None),
}


def build(name: str, features: int, classes: int, seed: int, radius: float) -> EquilibriumModel:
    """A network in float64 whose recurrence is as strong as its radius allows."""
    kind, solver, kernel = NETWORKS[name]
    torch.manual_seed(seed)
    options: dict[str, Any] = {"radius": radius, "bound": "exact", "solver": solver}
    model: EquilibriumModel
    if kind == "looped":
        model = LoopedMLP(features, 24, classes, kernel=kernel, **options)  # type: ignore[arg-type]
    else:
        model = HopfieldMLP((features, 24, 20, classes), **options)
        model.kernel = kernel  # type: ignore[assignment]
    model.on_failure = "ignore"
    with torch.no_grad():
        for label, parameter in model.named_parameters():
            if label.endswith("raw"):
                parameter.mul_(50)
    return model.double()


def residuals(stack: Stack, x: np.ndarray, state: list[np.ndarray]) -> np.ndarray:
    """(batch,) the worst layer's ``‖f(s) − s‖`` against its activity, by NumPy."""
    found = []
    for value, u in zip(state, stack.inputs(x, state), strict=True):
        image = np.tanh(u)
        size = np.maximum(np.linalg.norm(image, axis=1), FLOOR * value.shape[1] ** 0.5)
        found.append(np.linalg.norm(image - value, axis=1) / size)
    return np.max(found, axis=0)


def reach(stack: Stack, state: list[np.ndarray]) -> np.ndarray:
    """(batch,) what a relative change of one in every layer changes the next image by, at most,
    relative to its layer's activity: norms of the couplings times ratios of activities."""
    sizes = [
        np.maximum(np.linalg.norm(value, axis=1), FLOOR * value.shape[1] ** 0.5) for value in state
    ]
    norms = [np.linalg.norm(weight, 2) for weight in stack.weights]
    found = []
    for layer, size in enumerate(sizes):
        moved = np.zeros_like(size)
        if layer > 0:
            moved += norms[layer] * sizes[layer - 1]
        if layer + 1 < len(sizes):
            moved += stack.feedback * norms[layer + 1] * sizes[layer + 1]
        found.append(moved / size)
    return np.max(found, axis=0)


def endings(model: EquilibriumModel, name: str, x: Tensor, y: Tensor) -> list[Ending]:
    """A relaxation that has time, one that has not, a nudge that is too strong, one that is not."""
    found = []

    def note(what: str, expected: str, said: str) -> None:
        found.append(Ending(name, what, expected, said))

    model.solver = model.solver.limited(1e-6, 400)
    note("enough steps", "CONVERGED", model.equilibrium(x).status.name)
    model.solver = model.solver.limited(1e-10, 3)
    short = model.equilibrium(x)
    note("3 steps of many", "MAX_STEPS", short.status.name)
    note("3 steps, counted", "3", str(short.steps))
    note("3 steps, a layer is named", "yes", "no" if short.layer is None else "yes")
    model.failures.clear()
    model.equilibrium(x)
    note("3 steps, counted as a failure", "1", str(sum(model.failures.values())))
    note("3 steps, asked to raise", "raised", _outcome(model, "raise", x))
    note("3 steps, asked to warn", "warned", _outcome(model, "warn", x))
    model.solver = model.solver.limited(1e-6, 400)
    for beta, expected in ((1e-3, "CONVERGED"), (30.0, "TOO_STRONG")):
        model.gradient = CenteredEP(beta)
        note(f"nudge {beta:g}", expected, _nudged(model, x, y))
    model.gradient, model.solver = CenteredEP(0.01), model.solver.limited(1e-12, 3)
    note("3 nudged steps", "MAX_STEPS", _nudged(model, x, y))
    model.solver = model.solver.limited(1e-6, 400)
    return found


def diverging() -> Ending:
    """A drive that is not finite has no equilibrium."""
    generator = torch.Generator().manual_seed(0)
    params = (
        torch.randn(4, 4, generator=generator), torch.zeros(4),
        0.1 * torch.eye(4),
    )  # fmt: skip
    system = System.bind(DenseEnergy(), torch.full((2, 4), torch.inf), params)
    found = solve(system, system.initial_state(), FixedPoint())
    return Ending("any, general", "an infinite drive", "DIVERGED", found.status.name)


def _outcome(model: EquilibriumModel, on_failure: str, x: Tensor) -> str:
    model.on_failure = on_failure  # type: ignore[assignment]
    model._warned.clear()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.equilibrium(x)
    except ConvergenceError:
        return "raised"
    finally:
        model.on_failure = "ignore"
    said = any(issubclass(w.category, ConvergenceWarning) for w in caught)
    return "warned" if said else "silent"


def _nudged(model: EquilibriumModel, x: Tensor, y: Tensor) -> str:
    """How the nudged phases say they ended."""
    kept: list[Solution] = []

    def note(phase: str, solution: Solution) -> None:
        if phase == "nudged":
            kept.append(solution)

    key = model.register_relaxation_hook(note)
    try:
        F.cross_entropy(model(x), y).backward()
    finally:
        model.remove_relaxation_hook(key)
        model.zero_grad()
    return kept[-1].status.name if kept else "not reported"
