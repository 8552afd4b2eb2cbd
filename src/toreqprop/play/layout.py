"""Where the neurons of a layer are drawn: those that are active together, side by side."""

from __future__ import annotations

import math
import random

import numpy as np
import torch
from torch import Tensor

from toreqprop.models import EquilibriumModel

SWEEPS = 400
"""Attempted exchanges for each neuron."""

WATCHED = 400
"""Samples whose equilibria say which neurons go together."""


@torch.no_grad()
def layer_orders(model: EquilibriumModel, x: Tensor, columns: list[int]) -> list[list[int]]:
    """For each layer, the neuron at each place of its grid, by its equilibria for ``x``."""
    states = model.equilibrium(x[:WATCHED]).state
    return [arranged(s.flatten(1).numpy(), c) for s, c in zip(states, columns, strict=True)]


def arranged(states: np.ndarray, columns: int, seed: int = 0) -> list[int]:
    """Neurons (states: samples × neurons) on a grid, row by row, so that neighbours correlate.

    Pairs exchange places where that raises the sum of the correlations of neighbours, and less and
    less often where it does not (simulated annealing). Only the picture depends on it.
    """
    count = states.shape[1]
    centred = states - states.mean(0)
    norms = np.maximum(np.linalg.norm(centred, axis=0), 1e-12)
    alike = ((centred / norms).T @ (centred / norms)).tolist()
    around = [_neighbours(p, columns, count) for p in range(count)]
    order, draw = list(range(count)), random.Random(seed)
    total = SWEEPS * count
    for trial in range(total):
        a, b = draw.randrange(count), draw.randrange(count)
        if a == b or b in around[a]:
            continue
        one, two = alike[order[a]], alike[order[b]]
        gain = sum(two[order[p]] - one[order[p]] for p in around[a])
        gain += sum(one[order[p]] - two[order[p]] for p in around[b])
        heat = 0.6 * (1 - trial / total) ** 2 + 1e-9
        if gain > 0 or draw.random() < math.exp(gain / heat):
            order[a], order[b] = order[b], order[a]
    return order


def grid_columns(count: int) -> int:
    """Columns of a grid for that many neurons, as near to a square as their number allows."""
    square = math.ceil(count**0.5)
    even = next(c for c in range(square, count + 1) if count % c == 0)
    return even if even <= 2 * square else square  # of a prime, say, the last row stays short


def _neighbours(place: int, columns: int, count: int) -> tuple[int, ...]:
    row, column = divmod(place, columns)
    found = []
    for down, right in ((0, 1), (0, -1), (1, 0), (-1, 0)):
        other = (row + down) * columns + column + right
        if 0 <= column + right < columns and 0 <= other < count:
            found.append(other)
    return tuple(found)
