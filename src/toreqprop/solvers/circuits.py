"""Solvers for resistive networks: Newton's method with the low-rank structure, and block descent.

Both use the circuit's own currents, diodes and total conductances, where general methods see the
fixed-point map alone; both serve one phase and two, whose difference is carried.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from toreqprop.energies.circuits import DiodePair, ResistiveEnergy, Wired
from toreqprop.energies.pairs import center, shift
from toreqprop.energies.system import PairSystem, System, paired, split
from toreqprop.errors import UnsupportedModelError
from toreqprop.solution import State
from toreqprop.solvers.base import Dynamics, Solver

STRONG = 0.25
"""Part of n·V_t by which a nudge may move a junction for both phases to share a Jacobian."""

LARGEST_PRODUCT = 2**22
"""Entries of the table of products of couplings; beyond, each sample's matrix is formed anew."""


@dataclass(frozen=True, kw_only=True)
class Newton(Solver):
    """Newton's method with every second layer eliminated and junctions limited as in SPICE.

    Of two phases, the mean and the half difference take the step of their common Jacobian, so that
    nothing cancels; where a nudge moves a junction by a good part of n·V_t, each phase takes the
    step of its own.
    """

    tol: float = 1e-4
    max_steps: int = 100
    plain: ClassVar[bool] = False

    def evaluate(self, system: Dynamics, state: State) -> State:
        """The state after one limited step."""
        field, wired, signals = _circuit(self, system, state)
        force = _force(system, signals)
        if not isinstance(system, PairSystem):
            return _limited_step(field, wired, signals, force)
        balanced = [wired.balance(layer, signals) for layer in range(wired.depth)]
        slopes = [slope for _, slope in balanced]
        pushes = _pushes(field, [current for current, _ in balanced], force)
        moves = [
            _newton_moves(wired, slopes, [part(p) for p in pushes]) for part in (center, shift)
        ]
        middle = [v.center + move for v, move in zip(signals, moves[0], strict=True)]
        for layer, pair in enumerate(wired.pairs):
            middle[layer] = _limited(signals[layer].center, middle[layer], pair)
        apart = [v.shift + move for v, move in zip(signals, moves[1], strict=True)]
        strong = _strong(wired, signals, apart)
        if not bool(strong.any()):
            return (*middle, *apart)
        assert force is not None
        up, down = (
            _limited_step(
                field, wired, tuple(getattr(v, side) for v in signals),
                tuple(getattr(f, side) for f in force),
            )
            for side in ("up", "down")
        )  # fmt: skip
        both = list(zip(up, down, strict=True))
        alone = (*(0.5 * (a + b) for a, b in both), *(0.5 * (a - b) for a, b in both))
        together = (*middle, *apart)
        return tuple(
            torch.where(strong[:, None], a, b) for a, b in zip(alone, together, strict=True)
        )

    def step(
        self, system: Dynamics, state: State, image: State, memory: None
    ) -> tuple[State, None]:
        return image, None


@dataclass(frozen=True, kw_only=True)
class BlockDescent(Solver):
    """Each layer in turn to its exact minimum given its neighbours: upwards in a free phase,
    downwards in a nudged one, where the nudge arrives at the top."""

    tol: float = 1e-5
    max_steps: int = 5000
    plain: ClassVar[bool] = False

    def evaluate(self, system: Dynamics, state: State) -> State:
        """The state after one sweep over the layers."""
        field, wired, signals = _circuit(self, system, state)
        new = list(signals)
        layers = range(wired.depth)
        for layer in layers if system.free else reversed(layers):
            # Read anew: a nudge by a cost depends on the outputs, which this sweep has moved.
            force = _force(system, tuple(new))
            current = wired.rest(layer, tuple(new))
            if force is not None:
                current = current - force[layer] / field.temperature(layer)
            new[layer] = wired.settled(layer, current)
        return split(tuple(new)) if isinstance(system, PairSystem) else tuple(new)

    def step(
        self, system: Dynamics, state: State, image: State, memory: None
    ) -> tuple[State, None]:
        return image, None


def _bound(system: Dynamics) -> System | None:
    if isinstance(system, PairSystem):
        return system.system
    return system if isinstance(system, System) else None


def _field(solver: Solver, system: Dynamics) -> ResistiveEnergy:
    bound = _bound(system)
    if bound is None or not isinstance(bound.field, ResistiveEnergy):
        raise UnsupportedModelError(
            f"{type(solver).__name__} needs the currents of a circuit, such as ResistiveMLP's: use "
            "solver=FixedPoint() or Anderson()."
        )
    return bound.field


def _force(system: Dynamics, signals: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """What a nudge takes from each preactivation, for one phase or two."""
    if isinstance(system, PairSystem):
        return system.nudge.force(signals)
    assert isinstance(system, System)
    return None if system.nudge is None else system.nudge.force(signals)


def _circuit(
    solver: Solver, system: Dynamics, state: State
) -> tuple[ResistiveEnergy, Wired, tuple[Any, ...]]:
    """The energy, its currents, and the voltages of one phase or two."""
    field, bound = _field(solver, system), _bound(system)
    assert bound is not None
    signals: tuple[Any, ...] = paired(state) if isinstance(system, PairSystem) else state
    return field, field.wired(bound.drive, bound.params), signals


def _pushes(
    field: ResistiveEnergy, currents: list[Any], force: tuple[Any, ...] | None
) -> list[Any]:
    """The current into each node that is not yet balanced."""
    if force is None:
        return [-current for current in currents]
    both = enumerate(zip(currents, force, strict=True))
    return [-current - f / field.temperature(layer) for layer, (current, f) in both]


def _limited_step(
    field: ResistiveEnergy, wired: Wired, nodes: State, force: tuple[Tensor, ...] | None
) -> State:
    """One step of one phase, with its own Jacobian."""
    balanced = [wired.balance(layer, nodes) for layer in range(wired.depth)]
    pushes = _pushes(field, [current for current, _ in balanced], force)
    moves = _newton_moves(wired, [slope for _, slope in balanced], pushes)
    new = [v + move for v, move in zip(nodes, moves, strict=True)]
    for layer, pair in enumerate(wired.pairs):
        new[layer] = _limited(nodes[layer], new[layer], pair)
    return tuple(new)


def _strong(wired: Wired, signals: tuple[Any, ...], apart: list[Tensor]) -> Tensor:
    """Samples whose phases' junctions are too far apart to share a Jacobian, (batch,)."""
    found = torch.zeros(len(apart[0]), dtype=torch.bool, device=apart[0].device)
    for v, new, pair in zip(signals, apart, wired.pairs, strict=False):
        far = torch.maximum(v.shift.abs(), new.abs()).amax(1)
        found = found | (far > STRONG * pair.scale)
    return found


def _limited(old: Tensor, new: Tensor, pair: DiodePair) -> Tensor:
    """No junction's overdrive grows by more than a logarithm of what Newton asks for."""
    side = torch.where(new >= 0, 1.0, -1.0).to(new)
    before, after = side * old - pair.clamp, side * new - pair.clamp
    saturation = new.new_zeros(()) + pair.positive + pair.negative
    critical = pair.scale * torch.log(pair.scale / (math.sqrt(2) * saturation))
    growth = (after - before) / pair.scale
    wild = (after > critical) & (growth > 2)
    if not bool(wild.any()):
        return new
    from_on = before + pair.scale * torch.log1p(growth.clamp(min=0))
    from_off = pair.scale * torch.log(after.clamp(min=pair.scale) / pair.scale)
    limited = torch.where(before > 0, from_on, torch.maximum(from_off, before))
    return torch.where(wild, side * (limited + pair.clamp), new)


def _newton_moves(wired: Wired, slope: list[Tensor], push: list[Tensor]) -> list[Tensor]:
    """``J⁻¹·push``: layers of one parity eliminated, the others solved as one dense system."""
    widths = [v.shape[1] for v in slope]
    kept = _kept(widths)
    gone = [layer for layer in range(wired.depth) if layer not in kept]
    moves = list(push)
    first = {layer: push[layer] / slope[layer] for layer in gone}
    right = [push[layer] + _neighbours(wired, layer, first) for layer in kept]
    matrix = _schur(wired, slope, kept, gone, widths)
    solved = torch.linalg.solve(matrix, torch.cat(right, 1))
    for layer, part in zip(kept, solved.split([widths[i] for i in kept], 1), strict=True):
        moves[layer] = part
    known = {layer: moves[layer] for layer in kept}
    for layer in gone:
        moves[layer] = first[layer] + _neighbours(wired, layer, known) / slope[layer]
    return moves


def _neighbours(wired: Wired, layer: int, moves: dict[int, Tensor]) -> Tensor | float:
    """Current into a layer's nodes from moves of the layers beside it."""
    total: Tensor | float = 0.0
    if layer - 1 in moves:
        total = (moves[layer - 1] * wired.rising[layer - 1]) @ wired.coupling[layer - 1].mT
    if layer + 1 in moves:
        total = (moves[layer + 1] @ wired.coupling[layer]) * wired.falling[layer] + total
    return total


def _kept(widths: Sequence[int]) -> list[int]:
    """The layers of the parity with fewer nodes."""
    even, odd = list(range(0, len(widths), 2)), list(range(1, len(widths), 2))
    fewer = sum(widths[i] for i in odd) < sum(widths[i] for i in even)
    return odd if odd and fewer else even


def _schur(
    wired: Wired, slope: list[Tensor], kept: list[int], gone: list[int], widths: list[int]
) -> Tensor:
    """The matrix (batch, n, n) of the layers that are kept: ``J_kk − J_kg J_gg⁻¹ J_gk``."""
    starts = {layer: sum(widths[i] for i in kept if i < layer) for layer in kept}
    matrix = torch.diag_embed(torch.cat([slope[i] for i in kept], 1))
    for layer in gone:
        inverse = 1 / slope[layer]
        beside = [i for i in (layer - 1, layer + 1) if 0 <= i < wired.depth]
        for row in beside:
            to_row = _link(wired, layer, row)
            at = slice(starts[row], starts[row] + widths[row])
            for column in beside:
                from_column = _link(wired, column, layer)
                to = slice(starts[column], starts[column] + widths[column])
                matrix[:, at, to] -= _weighted_product(to_row, inverse, from_column)
    return matrix


def _link(wired: Wired, source: int, target: int) -> Tensor:
    """Current into each node of one layer per volt at each of another, (n_target, n_source)."""
    if target > source:
        return wired.coupling[source] * wired.rising[source]
    return (wired.coupling[target] * wired.falling[target]).mT


def _weighted_product(a: Tensor, weight: Tensor, b: Tensor) -> Tensor:
    """``a·diag(w)·b`` for each sample, (batch, p, q), from (p, n), (batch, n) and (n, q)."""
    p, n, q = a.shape[0], weight.shape[1], b.shape[1]
    if n * p * q <= LARGEST_PRODUCT:
        table = (a.mT[:, :, None] * b[:, None, :]).reshape(n, p * q)
        return (weight @ table).reshape(-1, p, q)
    return (a * weight[:, None, :]) @ b


CIRCUIT_SOLVERS: dict[str, type[Solver]] = {"newton": Newton, "block_descent": BlockDescent}
"""Solvers by name that serve resistive networks alone."""
