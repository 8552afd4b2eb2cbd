"""What the tracks of chips share: training in place, and solvers that bear witness or cheat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from toreqprop.bench.hardware.methods import Recipe, Split, final_split, placed
from toreqprop.energies import Params, System
from toreqprop.energies.devices import Device, DeviceField
from toreqprop.energies.system import PairSystem
from toreqprop.models import HopfieldMLP, OnChip
from toreqprop.solution import Solution, State
from toreqprop.solvers import Solver, Trace
from toreqprop.solvers.base import Dynamics
from toreqprop.training import fit, predict
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Accuracy

CHOSEN = Recipe(learning_rate=0.03, gain=5.0)
"""What the search of the sweep chose for digits, on held-out training data."""


def recipe_for(level: Level) -> Recipe:
    """Fewer epochs in a smoke test."""
    return replace(CHOSEN, epochs=level.pick(4, 8, 10))


@dataclass(frozen=True, kw_only=True)
class Around(Solver):
    """A solver with something around it: ``seen`` gets every system it is given, ``change`` may
    exchange the system of the nudged phases."""

    inner: Solver
    seen: Callable[[str, System], None] = lambda phase, system: None
    change: Callable[[System], System] | None = None

    def step(self, system: Dynamics, state: State, image: State, memory: Any) -> tuple[State, Any]:
        return self.inner.step(system, state, image, memory)

    def solve(
        self,
        system: Dynamics,
        start: State,
        *,
        trace: Trace | None = None,
        remember: bool = False,
    ) -> Solution:
        if isinstance(system, PairSystem):
            if self.change is not None:
                system = PairSystem(self.change(system.system), system.nudge)
            self.seen("nudged", system.system)
        elif isinstance(system, System):
            self.seen("free", system)
        return self.inner.solve(system, start, trace=trace, remember=remember)


@dataclass
class Levels:
    """The most values that any matrix of weights had, by phase."""

    most: dict[str, int] = field(default_factory=dict)

    def __call__(self, phase: str, system: System) -> None:
        count = max(_distinct(p) for p in system.params if p.dim() > 1)
        self.most[phase] = max(count, self.most.get(phase, 0))


def _distinct(weight: Tensor) -> int:
    # A weight is its written value plus a difference: the same level, rounded differently.
    unit = weight.abs().max().clamp_min(1e-12)
    return len((weight / unit).mul(1e4).round().unique())


def other_weights(params: Callable[[], Params]) -> Callable[[System], System]:
    """A cheat: the phase runs with these weights."""

    def change(system: System) -> System:
        with torch.no_grad():
            found = params()
            return replace(system, params=found, drive=system.field.prepare(system.x, found))

    return change


def other_device(**changes: Any) -> Callable[[System], System]:
    """A cheat: the phase runs on a chip without some of its faults."""

    def change(system: System) -> System:
        found = system.field
        assert isinstance(found, DeviceField)
        return replace(system, field=replace(found, device=replace(found.device, **changes)))

    return change


def learned(
    device: Device,
    recipe: Recipe,
    seed: int,
    *,
    frozen: bool = False,
    around: Callable[[OnChip], None] = lambda chip: None,
    options: dict[str, Any] | None = None,
) -> tuple[OnChip, Split]:
    """A network trained in place; ``around`` may put something around its solver."""
    data, network = final_split(recipe.task, seed), recipe.network(seed)
    chip = placed(network, replace(device, seed=seed), recipe, data, options or {})
    if frozen:
        freeze(network)
    around(chip)
    fit(chip, data.x, data.y, recipe.config(seed), loss=recipe.loss)
    return chip, data


def freeze(network: HopfieldMLP) -> None:
    """Every layer but the last stays as it was drawn."""
    for layer in list(network.layers)[:-1]:
        layer.requires_grad_(False)


def scored(model: nn.Module, data: Split, seed: int, contrast: bool = False) -> Accuracy:
    """Its accuracy on the test data, with noise of this seed."""
    torch.manual_seed(seed)
    right = int((predict(model, data.held_x) == data.held_y).sum())
    chance = float(data.held_y.bincount().max()) / len(data.held_y)
    return Accuracy((right,), (len(data.held_y),), chance, contrast=contrast)
