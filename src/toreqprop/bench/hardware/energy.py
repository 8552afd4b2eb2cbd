"""Joules of one update, from a stated model: what is counted, and what each count is taken to cost.

The counts are those of the simulation; the costs are assumptions that a user replaces by those of
a device. Those of digital arithmetic are Horowitz's for 45 nm (10.1109/ISSCC.2014.6757323): 0.9 pJ
for a 32-bit addition and 3.7 pJ for a multiplication.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from toreqprop.energies.devices import Device


@dataclass(frozen=True)
class Costs:
    """Joules of one operation.

    Attributes:
        crossing: one weight, read once in one direction in an analog crossbar.
        conversion: one state, read once through a converter.
        write: one weight, programmed once.
        digital: one multiplication and addition in 32 bits, without fetching its operands.
    """

    crossing: float = 10e-15
    conversion: float = 1e-12
    write: float = 1e-12
    digital: float = 4.6e-12


@dataclass(frozen=True)
class Counts:
    """Operations of one update of a batch."""

    crossings: int
    conversions: int
    writes: int
    digital: int

    def joules(self, costs: Costs) -> float:
        """Their cost."""
        return (
            self.crossings * costs.crossing
            + self.conversions * costs.conversion
            + self.writes * costs.write
            + self.digital * costs.digital
        )


def evaluations(device: Device, batch: int) -> int:
    """Evaluations of the map in the three phases of an update, over all samples."""
    free = device.settle if device.settle_free is None else device.settle_free
    return batch * (free + 2 * device.settle + 3 * device.average)


def on_chip(device: Device, sizes: tuple[int, ...], batch: int) -> Counts:
    """EP in place: every evaluation reads the weights between neurons in both directions, and
    every neuron; inputs are held, so that their weights are read once a phase."""
    count = evaluations(device, batch)
    inner = sum(a * b for a, b in itertools.pairwise(sizes[1:]))
    weights = sizes[0] * sizes[1] + inner
    # The local rule is digital: two products a weight and sample, at the one who updates.
    return Counts(
        crossings=2 * inner * count + 3 * batch * sizes[0] * sizes[1],
        conversions=sum(sizes[1:]) * count,
        writes=weights,
        digital=2 * batch * weights,
    )


def digital_backprop(sizes: tuple[int, ...], batch: int) -> Counts:
    """Backpropagation: a product a weight forward, one for its gradient, and one backward but for
    the first layer."""
    weights = sum(a * b for a, b in itertools.pairwise(sizes))
    return Counts(0, 0, 0, batch * (3 * weights - sizes[0] * sizes[1]))
