"""Operating points of a resistive network, batched: Newton's method and block coordinate descent.

Given its neighbours, a layer's nodes do not see each other. So every block on the diagonal of the
Jacobian is itself diagonal; eliminating every second layer leaves a small dense system, of the
size of the outputs where there is one hidden layer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from toreqprop.errors import InvalidInputError
from toreqprop.hardware.circuit_solution import CircuitSolution, CircuitStatus
from toreqprop.hardware.faults import Faults
from toreqprop.hardware.resistive import Conductances, Pair, ResistiveNetwork, Voltages
from toreqprop.hardware.wired import Wired, wire

ROUGH = 1e-3
"""Volts to which the first sweep, a starting point only, settles each layer."""


class Method(Protocol):
    """A way to iterate: ``step`` makes new voltages from old ones."""

    @property
    def tol(self) -> float: ...

    @property
    def max_steps(self) -> int: ...

    def step(self, wired: Wired, nodes: Voltages) -> Voltages: ...


def solve_circuit(
    network: ResistiveNetwork,
    conductances: Conductances,
    x: Tensor,
    target: Tensor | None = None,
    beta: float | Tensor = 0.0,
    faults: Faults | None = None,
    method: Method | None = None,
    initial: Voltages | None = None,
) -> CircuitSolution:
    """Operating points of a batch: voltages at which no current is left over.

    Args:
        network: the circuit.
        conductances: (nodes, rails) siemens per crossbar.
        x: (batch, inputs).
        target: (batch, outputs) volts, where a nudge pulls to.
        beta: strength of the nudge in siemens, a number or (batch,).
        faults: of the components.
        method: ``Newton()`` where not given.
        initial: voltages to start from; a sweep upwards where not given.
    """
    method = method or Newton()
    with torch.no_grad():
        wired = wire(network, conductances, x, target, beta, faults)
        start = initial or tuple(x.new_zeros(len(x), n) for n in network.sizes[1:])
        nodes, steps, error = _iterate(wired, _sweep(wired, start, ROUGH), method)
        rails = network.rails(x, nodes, None if faults is None else faults.to(x))
    status = CircuitStatus.CONVERGED
    if not bool(torch.isfinite(error).all()):
        status = CircuitStatus.DIVERGED
    elif bool((error > _tolerance(method.tol, nodes)).any()):
        status = CircuitStatus.MAX_STEPS
    return CircuitSolution(nodes, rails, steps, error, status)


def _tolerance(tol: float, nodes: Voltages) -> Tensor:
    """``tol``, but never less than rounding of the largest voltage; (batch,)."""
    largest = torch.stack([v.abs().amax(1) for v in nodes]).amax(0)
    return (16 * torch.finfo(largest.dtype).eps * largest).clamp(min=tol)


def _iterate(wired: Wired, start: Voltages, method: Method) -> tuple[Voltages, int, Tensor]:
    """Step until no node moves by more than ``tol``; samples that have converged are left alone."""
    nodes = [v.clone() for v in start]
    error = start[0].new_full((wired.rows,), math.inf)
    active = torch.arange(wired.rows, device=error.device)
    current, part = tuple(nodes), wired
    steps = 0
    while steps < method.max_steps:
        steps += 1
        new = method.step(part, current)
        moves = [(a - b).abs().amax(1) for a, b in zip(new, current, strict=True)]
        move = torch.stack(moves).amax(0)
        for whole, v in zip(nodes, new, strict=True):
            whole[active] = v
        error[active] = move
        going = (move > _tolerance(method.tol, new)) & torch.isfinite(move)
        if not bool(going.any()):
            break
        if not bool(going.all()):
            keep = going.nonzero().squeeze(1)
            active, part = active[keep], part.take(keep)
            new = tuple(v[keep] for v in new)
        current = new
    return tuple(nodes), steps, error


@dataclass(frozen=True)
class BlockDescent:
    """Each layer in turn to its exact minimum given its neighbours, upwards.

    Attributes:
        tol: volts, the largest move of a node in the last sweep.
        max_steps: sweeps.
    """

    tol: float = 1e-12
    max_steps: int = 5000

    def __post_init__(self) -> None:
        _check_method(self)

    def step(self, wired: Wired, nodes: Voltages) -> Voltages:
        """One sweep over the layers."""
        return _sweep(wired, nodes, 0.1 * self.tol)


@dataclass(frozen=True)
class Newton:
    """Newton's method with every second layer eliminated and junctions limited as in SPICE.

    Attributes:
        tol: volts, the largest move of a node in the last step.
        max_steps: Newton steps.
    """

    tol: float = 1e-12
    max_steps: int = 200

    def __post_init__(self) -> None:
        _check_method(self)

    def step(self, wired: Wired, nodes: Voltages) -> Voltages:
        """One limited Newton step."""
        moves = _newton_move(wired, nodes)
        new = [v + move for v, move in zip(nodes, moves, strict=True)]
        for layer, pair in enumerate(wired.pairs):
            new[layer] = _limit(nodes[layer], new[layer], pair)
        return tuple(new)


def _check_method(method: Method) -> None:
    if not 0 < method.tol < math.inf:
        raise InvalidInputError(f"tol must be > 0 V, got {method.tol}. Typical: 1e-12")
    if method.max_steps < 1:
        raise InvalidInputError(f"max_steps must be >= 1, got {method.max_steps}")


def _sweep(wired: Wired, nodes: Voltages, tol: float) -> Voltages:
    new = list(nodes)
    for layer in range(wired.depth):
        new[layer] = wired.settle_layer(layer, tuple(new), tol)
    return tuple(new)


def _limit(old: Tensor, new: Tensor, pair: Pair) -> Tensor:
    """No junction's overdrive grows by more than a logarithm of what Newton asks for."""
    side = torch.where(new >= 0, 1.0, -1.0).to(new)
    before, after = side * old - pair.clamp, side * new - pair.clamp
    saturation = new.new_zeros(()) + pair.positive + pair.negative
    critical = pair.scale * torch.log(pair.scale / (math.sqrt(2) * saturation))
    growth = (after - before) / pair.scale
    from_on = before + pair.scale * torch.log1p(growth.clamp(min=0))
    from_off = pair.scale * torch.log(after.clamp(min=pair.scale) / pair.scale)
    limited = torch.where(before > 0, from_on, torch.maximum(from_off, before))
    wild = (after > critical) & (growth > 2)
    return torch.where(wild, side * (limited + pair.clamp), new)


def _newton_move(wired: Wired, nodes: Voltages) -> list[Tensor]:
    """``−J⁻¹F``: layers of one parity eliminated, the others solved as one dense system."""
    residual, slope = wired.residual(nodes)
    push = [-f for f in residual]
    widths = [v.shape[1] for v in nodes]
    kept = _kept(widths)
    moves: list[Tensor] = list(push)
    if kept:
        solved = torch.linalg.solve(*_schur(wired, slope, push, kept, widths))
        for layer, part in zip(kept, solved.split([widths[i] for i in kept], 1), strict=True):
            moves[layer] = part
    for layer in range(wired.depth):
        if layer not in kept:
            current = push[layer]
            if layer > 0:
                current = current + moves[layer - 1] @ wired.up[layer - 1].mT
            if layer + 1 < wired.depth:
                current = current + moves[layer + 1] @ wired.down[layer].mT
            moves[layer] = current / slope[layer]
    return moves


def _kept(widths: Sequence[int]) -> list[int]:
    """The layers of the parity with fewer nodes."""
    even, odd = list(range(0, len(widths), 2)), list(range(1, len(widths), 2))
    fewer = sum(widths[i] for i in odd) < sum(widths[i] for i in even)
    return odd if fewer else even


def _schur(
    wired: Wired, slope: Voltages, push: list[Tensor], kept: list[int], widths: list[int]
) -> tuple[Tensor, Tensor]:
    """Matrix (batch, n, n) and right side (batch, n) of the layers that are kept."""
    starts = {layer: sum(widths[i] for i in kept if i < layer) for layer in kept}
    rows, size = wired.rows, sum(widths[i] for i in kept)
    right = torch.cat([push[i] for i in kept], 1)
    matrix = torch.diag_embed(torch.cat([slope[i] for i in kept], 1))
    for gone in (i for i in range(wired.depth) if i not in kept):
        for row in (gone - 1, gone + 1):
            if not 0 <= row < wired.depth:
                continue
            # −J of (row, gone): a row above is driven by `up`, a row below by `down`.
            to_row = wired.up[gone] if row > gone else wired.down[row]
            scaled = to_row / slope[gone][:, None, :]
            at = slice(starts[row], starts[row] + widths[row])
            right[:, at] += (scaled @ push[gone][:, :, None]).squeeze(2)
            for column in (gone - 1, gone + 1):
                if 0 <= column < wired.depth:
                    from_column = wired.up[column] if column < gone else wired.down[gone]
                    to = slice(starts[column], starts[column] + widths[column])
                    matrix[:, at, to] -= scaled @ from_column
    return matrix.reshape(rows, size, size), right
