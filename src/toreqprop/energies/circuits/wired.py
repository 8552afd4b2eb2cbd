"""A resistive network bound to its tensors: the currents at its nodes in one simple form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from toreqprop.energies.circuits.network import Voltages
from toreqprop.energies.circuits.node_law import DiodePair, differenced, diode_current
from toreqprop.energies.pairs import Signal

Gain = Tensor | float


@dataclass(frozen=True)
class Wired:
    """``F_l = T_l·v_l + pair_l(v_l) − C_l(A_l·v_{l−1}) − D_l·C_{l+1}ᵀ v_{l+1} − K_l``.

    The current that leaves each node; conductances and currents in units of the energy's scale.

    Attributes:
        total: T_l, (n,), with what the amplifiers above draw.
        source: K_l, (n,) or (batch, n).
        coupling: C_l, (n_l, n_{l−1}), of the layers above the first.
        rising: A_l, gain of the amplifiers below each coupling, (n_{l−1},) or a number.
        falling: D_l, share of the current that they return.
        pairs: the diodes of every layer but the last.
    """

    total: tuple[Tensor, ...]
    source: tuple[Tensor, ...]
    coupling: tuple[Tensor, ...]
    rising: tuple[Gain, ...]
    falling: tuple[Gain, ...]
    pairs: tuple[DiodePair, ...]

    @property
    def depth(self) -> int:
        return len(self.total)

    def rest(self, layer: int, nodes: tuple[Any, ...]) -> Signal:
        """Current into a layer's nodes from its sources and neighbours; takes pairs too."""
        current: Signal = self.source[layer]
        if layer > 0:
            current = (nodes[layer - 1] * self.rising[layer - 1]) @ self.coupling[
                layer - 1
            ].mT + current
        if layer + 1 < self.depth:
            current = (nodes[layer + 1] @ self.coupling[layer]) * self.falling[layer] + current
        return current

    def balance(self, layer: int, nodes: tuple[Any, ...]) -> tuple[Signal, Tensor]:
        """Net current that leaves a layer's nodes, zero at an operating point, and its slope by
        the node's own voltage, (batch, n); takes pairs too."""
        v, total = nodes[layer], self.total[layer]
        current = v * total - self.rest(layer, nodes)
        if layer == len(self.pairs):
            return current, total.expand(v.shape)
        through, slope = diode_current(self.pairs[layer], v)
        return current + through, total + slope

    def settled(self, layer: int, current: Signal) -> Signal:
        """Voltages of a layer whose nodes get this current: ``T·v + pair(v) = current``."""
        total = self.total[layer]
        if layer == len(self.pairs):
            return current / total
        pair = self.pairs[layer]
        return differenced(lambda driven: pair.voltage(driven, total), current)

    def swept(self, steps: int) -> Voltages:
        """A pass upwards from nothing, so many steps in each layer: where to start from."""
        nodes: list[Tensor] = []
        for layer in range(self.depth):
            current = self.source[layer]
            if layer > 0:
                below = nodes[-1] * self.rising[layer - 1]
                current = below @ self.coupling[layer - 1].mT + current
            total = self.total[layer]
            if layer == len(self.pairs):
                nodes.append(current / total)
            else:
                nodes.append(self.pairs[layer].voltage(current, total, steps=steps))
        return tuple(nodes)
