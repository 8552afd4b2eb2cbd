"""A deep resistive network: the parts that do not learn.

Sources at ``±gain·x`` and a bias pair feed the first crossbar. A hidden node has two diodes to
``±clamp`` and a bidirectional amplifier: A times its voltage feeds the next crossbar, 1/A of the
current drawn there returns to the node. Outputs are plain nodes; a nudge is the current
``β·(y − v)``. The circuit settles where its co-content is stationary,

    Q = Σ_l A^(2(L−l))·[Σ ½g·ΔV² + Σ ∫I_diode dv] + β·½‖v_L − y‖².

Volts, siemens and amperes throughout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.energies.circuits.diode import NOMINAL_CELSIUS, Diode, thermal_voltage
from toreqprop.energies.circuits.faults import Faults
from toreqprop.errors import InvalidInputError

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
    celsius: float = NOMINAL_CELSIUS

    def __post_init__(self) -> None:
        sizes = checks.sizes("sizes", self.sizes, 2, "(64, 32, 10) (inputs, hidden, outputs)")
        object.__setattr__(self, "sizes", sizes)
        for name in ("gain", "input_gain", "capacitance"):
            checks.number(name, getattr(self, name), 0, above=True)
        for name in ("clamp", "bias"):
            checks.number(name, getattr(self, name), 0)
        for name in ("inverting", "upper_bias"):
            checks.flag(name, getattr(self, name))
        checks.instance("diode", self.diode, Diode, "use Diode()")
        thermal_voltage(self.celsius)  # refuses what is no temperature

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

    def input_rails(self, x: Tensor) -> Tensor:
        """Voltages of the first crossbar's sources, (batch, 2·inputs + 2)."""
        bias = x.new_full((len(x), 1), self.bias)
        driven = self.input_gain * x
        return torch.cat([driven, -driven, bias, -bias], 1)

    def rails(
        self, x: Tensor, nodes: tuple[Any, ...], faults: Faults | None = None
    ) -> tuple[Any, ...]:
        """Voltages that feed each crossbar, from those of the nodes; takes pairs too."""
        faults = faults or Faults()
        found: list[Any] = [self.input_rails(x)]
        for layer, v in enumerate(nodes[:-1]):
            up = (v + faults.offset_of(layer)) * faults.up_gain(layer, self.gain)
            parts = [up, -up] if self.inverting else [up]
            if self.upper_bias:
                bias = x.new_full((len(x), 1), self.bias)
                parts += [bias, -bias]
            found.append(torch.cat(parts, 1))
        return tuple(found)

    def check(self, conductances: Conductances, x: Tensor, target: Tensor | None = None) -> None:
        """Raise one sentence about the first thing that does not fit."""
        checks.tensors("conductances", conductances)
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
    checks.tensor(name, value, 0)
    if value.ndim != 2 or value.shape[1] != width or len(value) == 0:
        raise InvalidInputError(
            f"{name} must have shape (batch, {width}), got {tuple(value.shape)}"
        )
    if not bool(torch.isfinite(value).all()):
        raise InvalidInputError(f"{name} holds values that are not finite")
