"""The co-content of a resistive network as an energy of the library.

``E = Q/S`` with ``Q`` in watts and a conductance ``S``, the energy's scale, so that E is in V² and
a nudge of one is a current of S·1 V. The library's equilibria solve ``s = σ(∂Φ/∂s)`` with
``E = G(s) − Φ`` and a G without parameters, but what a node does on its own, ``T·v + I(v)``,
depends on its total conductance T, which learns. So a fixed conductance c takes T's place in G,

    G = Σ_l A^(2(L−l))·Σ [½c·v² + ∫I dv],    Φ = G − E,

and σ is the inverse of ``c·v + I(v)``: the plain map ``v ← σ(c·v − (T·v − currents))`` is a step
of proximal gradient descent, which descends for c ≥ T, whatever the diodes do. Newton's method and
block descent (`solvers.circuits`) use T itself and do not see c.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from toreqprop.energies.activations import activated
from toreqprop.energies.base import Energy, Gradients, Pairs, Params, Signals, Wants
from toreqprop.energies.circuits.diode import GMIN
from toreqprop.energies.circuits.faults import Faults
from toreqprop.energies.circuits.network import Conductances, ResistiveNetwork
from toreqprop.energies.circuits.node_law import DiodePair, NodeLaw, differenced, diode_current
from toreqprop.energies.circuits.wired import Wired
from toreqprop.energies.pairs import Signal
from toreqprop.solution import State

FIRST_STEPS = 2
"""Steps of Newton in each layer of the first sweep, which is a starting point only."""

FAULT_KINDS = 4
"""Tensors per hidden layer that follow the conductances in the parameters of a faulty circuit."""


@dataclass(frozen=True)
class ResistiveEnergy(Energy):
    """``E = (1/S)·Σ_l A^(2(L−l))·[Σ ½g·ΔV² + Σ ∫I_diode dv]``.

    Parameters are the conductances that are really there, (nodes, rails) siemens per crossbar; of a
    circuit with faults, for each hidden layer also (2, n) factors of the diodes' I_s, (n,) of the
    gains up and down, and (n,) offsets in volts. An error of the gain up or down alone leaves the
    currents without an energy: `preactivation` follows the currents, as the circuit does.

    Attributes:
        network: the parts that do not learn.
        scale: S, in siemens.
        reference: c of each layer, in siemens.
    """

    network: ResistiveNetwork
    scale: float
    reference: tuple[float, ...]
    pairs: ClassVar[bool] = True

    @property
    def analytic(self) -> bool:
        """A diode has a branch of its own in reverse."""
        return False

    @cached_property
    def laws(self) -> tuple[NodeLaw, ...]:
        """What the nodes of each layer do on their own, c in place of their total conductance."""
        found = [NodeLaw(c / self.scale, self._pair(1.0, 1.0)) for c in self.reference[:-1]]
        return (*found, NodeLaw(self.reference[-1] / self.scale))

    @property
    def activation(self) -> NodeLaw:  # type: ignore[override]
        return self.laws[0]

    def _pair(self, positive: Tensor | float, negative: Tensor | float) -> DiodePair:
        network = self.network
        saturation = network.diode.saturation_at(network.celsius) / self.scale
        scale = network.diode.scale(network.celsius)
        positive, negative = saturation * positive, saturation * negative
        return DiodePair(positive, negative, scale, network.clamp, GMIN / self.scale)

    def split(self, params: Params) -> tuple[Conductances, Faults]:
        """The conductances, and the faults that are not in them already."""
        depth = self.network.depth
        conductances, rest = params[:depth], params[depth:]
        if not rest:
            return conductances, Faults()
        saturation, up, down, offset = (rest[kind::FAULT_KINDS] for kind in range(FAULT_KINDS))
        return conductances, Faults(None, saturation, up, down, offset)

    def temperature(self, layer: int) -> float:
        """``A^(2(L−l))``."""
        return self.network.weight(layer)

    def prepare(self, x: Tensor, params: Params) -> Params:
        """Sources K, total conductances T and couplings C, layer by layer."""
        network, (actual, faults) = self.network, self.split(params)
        n = network.sizes[0]
        first, drive = actual[0], network.input_gain / self.scale
        total = [first.sum(1) / self.scale]
        bias = (network.bias / self.scale) * (first[:, -2] - first[:, -1])
        source = [torch.addmm(bias, x, (first[:, :n] - first[:, n:-2]).mT, alpha=drive)]
        coupling = []
        for layer in range(1, network.depth):
            g, n = actual[layer] / self.scale, network.sizes[layer]
            rising = faults.up_gain(layer - 1, network.gain)
            falling = faults.down_gain(layer - 1, network.gain)
            offset = faults.offset_of(layer - 1)
            signed, drawn = g[:, :n], g[:, :n].sum(0)
            if network.inverting:
                signed, drawn = signed - g[:, n : 2 * n], drawn + g[:, n : 2 * n].sum(0)
            load = rising * falling * drawn
            total[-1] = total[-1] + load
            source[-1] = source[-1] - load * offset
            fixed = x.new_zeros(len(g)) if isinstance(offset, float) else signed @ (rising * offset)
            if network.upper_bias:
                fixed = fixed + network.bias * (g[:, -2] - g[:, -1])
            coupling.append(signed)
            total.append(g.sum(1))
            source.append(fixed)
        # What is a view of a parameter cannot leave a Function as it is.
        return (*source, *total, *(c.clone() if c._is_view() else c for c in coupling))

    def wired(self, drive: Params, params: Params) -> Wired:
        """The currents, from what `prepare` returned."""
        depth, gain = self.network.depth, self.network.gain
        _, faults = self.split(params)
        hidden = range(depth - 1)
        return Wired(
            drive[depth : 2 * depth],
            drive[:depth],
            drive[2 * depth :],
            tuple(faults.up_gain(layer, gain) for layer in hidden),
            tuple(faults.down_gain(layer, gain) for layer in hidden),
            tuple(self._pair(*faults.diode_factors(layer)) for layer in hidden),
        )

    def initial_state(self, drive: Params, params: Params) -> State:
        """A pass upwards, without what comes back from above."""
        return self.wired(drive, params).swept(FIRST_STEPS)

    def layer_preactivation(
        self, layer: int, state: Signals, drive: Params, params: Params
    ) -> Signal:
        """``A^(2(L−l))·(c·v + I(v) − current that leaves)``; I cancels for diodes as drawn."""
        wired = self.wired(drive, params)
        v = state[layer]
        own = self.laws[layer].conductance - wired.total[layer]
        u = wired.rest(layer, state) + v * own
        if layer < len(wired.pairs) and isinstance(wired.pairs[layer].positive, Tensor):
            drawn, there = self.laws[layer].diodes, wired.pairs[layer]
            assert drawn is not None
            u = u + diode_current(drawn, v)[0] - diode_current(there, v)[0]
        return u * self.temperature(layer)

    def preactivation(self, state: Signals, drive: Params, params: Params) -> Signals:
        return tuple(
            self.layer_preactivation(layer, state, drive, params) for layer in range(len(state))
        )

    def colours(self, layers: int) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(range(first, layers, 2)) for first in range(min(2, layers)))

    def activate_layer(self, layer: int, preactivation: Signal) -> Signal:
        return activated(self.laws[layer], preactivation / self.temperature(layer))

    def deactivate(self, state: State) -> State:
        pairs = enumerate(zip(self.laws, state, strict=True))
        return tuple(self.temperature(layer) * law.inverse(s) for layer, (law, s) in pairs)

    def potential(self, state: State) -> Tensor:
        parts = [
            self.temperature(layer) * law.potential(s).sum(1)
            for layer, (law, s) in enumerate(zip(self.laws, state, strict=True))
        ]
        return torch.stack(parts).sum(0)

    def interaction(self, state: Signals, x: Tensor, params: Params) -> Signal:
        """``G − E``; of two phases the diodes' part is differenced in double precision."""
        conductances, faults = self.split(params)
        rails = self.network.rails(x, state, faults)
        total: Signal = 0.0
        for layer, (g, v) in enumerate(zip(conductances, state, strict=True)):
            rail, share = rails[layer], g / self.scale
            part = ((rail @ share.mT) * v).sum(1) - 0.5 * ((rail * rail) @ share.sum(0))
            own = self.laws[layer].conductance - share.sum(1)
            part = part + 0.5 * ((v * v) @ own)
            if layer < len(state) - 1 and faults.saturation is not None:
                drawn, there = self.laws[layer].diodes, self._pair(*faults.diode_factors(layer))
                assert drawn is not None
                part = part + differenced(
                    lambda s, a=drawn, b=there: (a.co_content(s) - b.co_content(s)).sum(1), v
                )
            total = part * self.temperature(layer) + total
        return total

    def energy_gradients(
        self, phases: Pairs, weight: Tensor, x: Tensor, params: Params, wants: Wants
    ) -> Gradients:
        """``∂E/∂g = (1/S)·A^(2(L−l))·½ΔV²``; of two phases mean ΔV times half its difference.

        The local rule, from the voltages at a conductance's two ends, whether or not amplifiers are
        reciprocal: what a circuit can measure.
        """
        network, (conductances, faults) = self.network, self.split(params)
        depth = network.depth
        if any(wants[1 + depth :]):
            return super().energy_gradients(phases, weight, x, params, wants)
        n, factor = network.sizes[0], weight[:, None] / self.scale
        found: list[Tensor | None] = [None]
        first = self.temperature(0) * factor * phases[0].shift
        if wants[0]:
            signed = conductances[0][:, :n] - conductances[0][:, n:-2]
            found[0] = -network.input_gain * (first @ signed)
        if wants[1]:
            found.append(_input_gradient(network, first, phases[0].center, x))
        else:
            found.append(None)
        rails = network.rails(x, phases, faults)
        for layer in range(1, depth):
            if not wants[1 + layer]:
                found.append(None)
                continue
            v, rail = phases[layer], rails[layer]
            heat = self.temperature(layer) * factor
            moved, rail_moved = heat * v.shift, heat * rail.shift
            ends = (rail_moved * rail.center).sum(0) + (moved * v.center).sum(0)[:, None]
            found.append(ends - v.center.mT @ rail_moved - moved.mT @ rail.center)
        return (*found, *(None for _ in wants[1 + depth :]))


def _input_gradient(network: ResistiveNetwork, moved: Tensor, center: Tensor, x: Tensor) -> Tensor:
    """Of the first crossbar, whose rails do not move: one product serves +x and −x."""
    own = (moved * center).sum(0)[:, None]
    cross = network.input_gain * (moved.mT @ x)
    bias = network.bias * moved.sum(0)[:, None]
    return torch.cat([own - cross, own + cross, own - bias, own + bias], 1)
