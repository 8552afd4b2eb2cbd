"""A deep resistive network: what it is, its currents, its co-content and its local gradient.

Sources at ``±gain·x`` and a bias pair feed the first crossbar. A hidden node has two diodes to
``±clamp`` and a bidirectional amplifier: A times its voltage feeds the next crossbar, 1/A of the
current drawn there returns to the node. Outputs are plain nodes; a nudge is the current
``β·(y − v)``. The circuit settles where its co-content is stationary,

    Q = Σ_l A^(2(L−l))·[Σ ½g·ΔV² + Σ ∫I_diode dv] + β·½‖v_L − y‖².

Volts, siemens and amperes throughout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from toreqprop.errors import InvalidInputError
from toreqprop.hardware.diode import (
    NOMINAL_CELSIUS,
    ZERO_CELSIUS,
    Diode,
    diode_co_content,
    diode_law,
)
from toreqprop.hardware.faults import Faults

Conductances = tuple[Tensor, ...]
"""One tensor (nodes, rails) in siemens per crossbar."""

Voltages = tuple[Tensor, ...]
"""One tensor (batch, n) in volts per layer."""


@dataclass(frozen=True)
class ResistiveNetwork:
    """The parts of the circuit that do not learn.

    Attributes:
        sizes: inputs, hidden layers, outputs.
        gain: A of the amplifiers, up; 1/A of the current comes down.
        diode: of the pair at each hidden node.
        clamp: voltage of the two sources the diodes lead to, ``±clamp``.
        bias: voltage of the bias pair, ``±bias``.
        input_gain: volts per unit of input.
        inverting: each hidden unit also feeds a rail at ``−A·v``, so that weights have a sign in
            every layer, not in the first alone.
        upper_bias: a bias pair in every crossbar, not in the first alone.
        capacitance: at each node, in farads; only transients see it.
        amplifier_time: time constant of each amplifier, in seconds; only transients see it.
        celsius: temperature of the circuit.
    """

    sizes: tuple[int, ...]
    gain: float = 4.0
    diode: Diode = Diode()
    clamp: float = 0.0
    bias: float = 1.0
    input_gain: float = 1.0
    inverting: bool = False
    upper_bias: bool = False
    capacitance: float = 1e-12
    amplifier_time: float = 0.0
    celsius: float = NOMINAL_CELSIUS

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", tuple(int(n) for n in self.sizes))
        if len(self.sizes) < 2 or min(self.sizes) < 1:
            raise InvalidInputError(
                f"sizes must be at least (inputs, outputs), each >= 1, got {self.sizes}"
            )
        for name in ("gain", "input_gain", "capacitance"):
            if not 0 < getattr(self, name) < math.inf:
                raise InvalidInputError(f"{name} must be > 0, got {getattr(self, name)}")
        for name in ("clamp", "bias", "amplifier_time"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidInputError(f"{name} must be >= 0, got {getattr(self, name)}")
        if not -ZERO_CELSIUS < self.celsius < math.inf:
            raise InvalidInputError(f"celsius must be above −273.15, got {self.celsius}")

    @property
    def depth(self) -> int:
        """Crossbars, which is also layers of free nodes."""
        return len(self.sizes) - 1

    def rail_count(self, layer: int) -> int:
        """Rails of a crossbar, counted from zero."""
        if layer == 0:
            return 2 * self.sizes[0] + 2
        return self.sizes[layer] * (1 + self.inverting) + 2 * self.upper_bias

    def weight(self, layer: int) -> float:
        """``A^(2(L−l))``: what a crossbar's co-content counts, the top one once."""
        return self.gain ** (2 * (self.depth - 1 - layer))

    def random_conductances(
        self,
        seed: int = 0,
        low: float = 1e-5,
        high: float = 1e-4,
        dtype: torch.dtype = torch.float64,
    ) -> Conductances:
        """Uniform between ``low`` and ``high`` siemens; (nodes, rails) each."""
        generator = torch.Generator().manual_seed(seed)
        shapes = [(self.sizes[i + 1], self.rail_count(i)) for i in range(self.depth)]
        return tuple(
            low + (high - low) * torch.rand(shape, generator=generator, dtype=dtype)
            for shape in shapes
        )

    def input_rails(self, x: Tensor) -> Tensor:
        """Voltages of the first crossbar's sources, (batch, 2·inputs + 2)."""
        bias = x.new_full((len(x), 1), self.bias)
        driven = self.input_gain * x
        return torch.cat([driven, -driven, bias, -bias], 1)

    def rails(self, x: Tensor, nodes: Voltages, faults: Faults | None = None) -> Voltages:
        """Voltages that feed each crossbar, from those of the nodes."""
        faults = faults or Faults()
        found = [self.input_rails(x)]
        for layer, v in enumerate(nodes[:-1]):
            up = faults.up_gain(layer, self.gain) * (v + faults.offset_of(layer))
            parts = [up, -up] if self.inverting else [up]
            if self.upper_bias:
                bias = v.new_full((len(v), 1), self.bias)
                parts += [bias, -bias]
            found.append(torch.cat(parts, 1))
        return tuple(found)

    def check(self, conductances: Conductances, x: Tensor, target: Tensor | None = None) -> None:
        """Raise one sentence about the first thing that does not fit."""
        if len(conductances) != self.depth:
            raise InvalidInputError(
                f"{self.sizes} has {self.depth} crossbars, got {len(conductances)} conductances"
            )
        for layer, g in enumerate(conductances):
            shape = (self.sizes[layer + 1], self.rail_count(layer))
            if tuple(g.shape) != shape:
                raise InvalidInputError(
                    f"conductances of crossbar {layer + 1} must have shape {shape} "
                    f"(nodes, rails), got {tuple(g.shape)}"
                )
            if not bool((torch.isfinite(g) & (g >= 0)).all()):
                raise InvalidInputError(
                    f"conductances of crossbar {layer + 1} must be finite and >= 0 S"
                )
            if not bool((g.sum(1) > 0).all()):
                raise InvalidInputError(
                    f"crossbar {layer + 1} has a node without any conductance: it would float"
                )
        _check_rows("x", x, self.sizes[0])
        if target is not None:
            _check_rows("target", target, self.sizes[-1])
            if len(target) != len(x):
                raise InvalidInputError(
                    f"x has {len(x)} rows and target {len(target)}: give one target per sample"
                )


def _check_rows(name: str, value: Tensor, width: int) -> None:
    if value.ndim != 2 or value.shape[1] != width or len(value) == 0:
        raise InvalidInputError(
            f"{name} must have shape (batch, {width}), got {tuple(value.shape)}"
        )
    if not bool(torch.isfinite(value).all()):
        raise InvalidInputError(f"{name} holds values that are not finite")


class Pair(NamedTuple):
    """The diode pairs of one hidden layer: I_s of both, ``n·V_t`` and the clamp voltage."""

    positive: Tensor | float
    negative: Tensor | float
    scale: float
    clamp: float

    def law(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Current that leaves the node in amperes, and its slope in siemens."""
        above, slope_above = diode_law(v - self.clamp, self.positive, self.scale)
        below, slope_below = diode_law(-v - self.clamp, self.negative, self.scale)
        return above - below, slope_above + slope_below

    def co_content(self, v: Tensor) -> Tensor:
        """Integral of the current from zero, watts."""
        above = diode_co_content(v - self.clamp, self.positive, self.scale)
        below = diode_co_content(-v - self.clamp, self.negative, self.scale)
        return above + below


def diode_pairs(network: ResistiveNetwork, faults: Faults) -> tuple[Pair, ...]:
    """The pairs of every hidden layer at the circuit's temperature."""
    saturation = network.diode.saturation_at(network.celsius)
    scale = network.diode.scale(network.celsius)
    found = []
    for layer in range(network.depth - 1):
        positive, negative = faults.diode_factors(layer)
        found.append(Pair(saturation * positive, saturation * negative, scale, network.clamp))
    return tuple(found)


def co_content(
    network: ResistiveNetwork,
    conductances: Conductances,
    x: Tensor,
    nodes: Voltages,
    target: Tensor | None = None,
    beta: float = 0.0,
    faults: Faults | None = None,
) -> Tensor:
    """``Q`` in watts, (batch,), counted in units of the top layer.

    Its stationary points are the circuit's where amplifiers are reciprocal, ``down = up/A²``; an
    error of the gain alone leaves the circuit without an energy.
    """
    network.check(conductances, x, target)
    faults = faults or Faults()
    actual = faults.conductances(conductances)
    total = x.new_zeros(len(x))
    pairs = diode_pairs(network, faults)
    for layer, (g, rail) in enumerate(zip(actual, network.rails(x, nodes, faults), strict=True)):
        v = nodes[layer]
        part = 0.5 * ((rail**2) @ g.sum(0) + (v**2) @ g.sum(1)) - ((rail @ g.mT) * v).sum(1)
        if layer < network.depth - 1:
            part = part + pairs[layer].co_content(v).sum(1)
        total = total + network.weight(layer) * part
    if target is not None:
        total = total + 0.5 * beta * ((nodes[-1] - target) ** 2).sum(1)
    return total


def conductance_gradients(
    network: ResistiveNetwork,
    positive: tuple[Voltages, Voltages],
    negative: tuple[Voltages, Voltages],
    beta: float,
) -> Conductances:
    """``dC/dg ≈ A^(2(L−l))·(½ΔV₊² − ½ΔV₋²)/(2β)``, mean over samples; (nodes, rails) each.

    A phase is (rails, nodes), the voltages at the two ends of every conductance: all that the
    rule needs, wherever they were measured. ``C = ½‖v_L − y‖²`` per sample, so the unit is V²/S.
    """
    if not 0 < beta < math.inf:
        raise InvalidInputError(f"beta must be a conductance > 0 S, got {beta}. Typical: 1e-6")
    found = []
    for layer in range(network.depth):
        rail_up, rail_down = positive[0][layer], negative[0][layer]
        node_up, node_down = positive[1][layer], negative[1][layer]
        # ½(a² − b²) = (a − b)·½(a + b): the difference first, where digits would cancel.
        rail_step, rail_mean = rail_up - rail_down, 0.5 * (rail_up + rail_down)
        node_step, node_mean = node_up - node_down, 0.5 * (node_up + node_down)
        ends = (rail_step * rail_mean).sum(0) + (node_step * node_mean).sum(0)[:, None]
        cross = node_mean.mT @ rail_step + node_step.mT @ rail_mean
        scale = network.weight(layer) / (2 * beta * len(rail_up))
        found.append(scale * (ends - cross))
    return tuple(found)
