"""Faults of a resistive network's components: how wide they spread, and one circuit of many."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.errors import InvalidInputError

if TYPE_CHECKING:
    from toreqprop.energies.circuits.network import ResistiveNetwork

Layers = tuple[Tensor, ...]

KINDS = ("conductance", "saturation", "up", "down", "offset")
"""What spreads from component to component, in the order in which it is drawn."""


@dataclass(frozen=True)
class Faults:
    """What differs from the drawing; ``None`` and zero mean nothing.

    Attributes:
        conductance: factor of each conductance, (nodes, rails) per crossbar.
        saturation: factor of each diode's I_s, (2, nodes) per hidden layer: the diodes to
            ``+clamp``, then those to ``−clamp``.
        up: factor of each amplifier's voltage gain A, (nodes,) per hidden layer.
        down: factor of each amplifier's current gain 1/A, (nodes,) per hidden layer.
        offset: volts added to each node's voltage at its amplifier, (nodes,) per hidden layer.
        wire: ohms of one segment of a crossbar's wires. The lead of the crossing of node i and rail
            j is i + j segments long; that segments are shared by leads is left out.
        amplifier_time: time constant of each amplifier, in seconds; only transients see it.
    """

    conductance: Layers | None = None
    saturation: Layers | None = None
    up: Layers | None = None
    down: Layers | None = None
    offset: Layers | None = None
    wire: float = 0.0
    amplifier_time: float = 0.0

    def __post_init__(self) -> None:
        for name in KINDS:
            if getattr(self, name) is not None:
                checks.tensors(name, getattr(self, name), least=0)
        for name in ("wire", "amplifier_time"):
            checks.number(name, getattr(self, name), 0)

    def check(self, network: ResistiveNetwork) -> None:
        """Raise one sentence about the first tensor whose shape does not fit the network."""
        for name, shapes in fault_shapes(network).items():
            given = getattr(self, name)
            found = None if given is None else [tuple(t.shape) for t in given]
            if found is not None and found != shapes:
                raise InvalidInputError(f"faults.{name} must have shapes {shapes}, got {found}")
            if given is not None and not all(bool(torch.isfinite(t).all()) for t in given):
                raise InvalidInputError(f"faults.{name} holds values that are not finite")
            if given is not None and name != "offset" and any(bool((t < 0).any()) for t in given):
                raise InvalidInputError(f"faults.{name} are factors and must be >= 0")

    def conductances(self, nominal: Layers) -> Layers:
        """The conductances that are really there, leads included."""
        actual = nominal
        if self.conductance is not None:
            actual = tuple(g * f for g, f in zip(nominal, self.conductance, strict=True))
        if not self.wire:
            return actual
        return tuple(g / (1 + g * self.wire * segments(g)) for g in actual)

    def diode_factors(self, layer: int) -> tuple[Tensor | float, Tensor | float]:
        """Factors of I_s of the diodes to ``+clamp`` and to ``−clamp``."""
        if self.saturation is None:
            return 1.0, 1.0
        return self.saturation[layer][0], self.saturation[layer][1]

    def up_gain(self, layer: int, gain: float) -> Tensor | float:
        """Voltage gain of a layer's amplifiers."""
        return gain if self.up is None else gain * self.up[layer]

    def down_gain(self, layer: int, gain: float) -> Tensor | float:
        """Current gain of a layer's amplifiers, downwards."""
        return 1 / gain if self.down is None else self.down[layer] / gain

    def offset_of(self, layer: int) -> Tensor | float:
        """Offset voltage at a layer's amplifiers."""
        return 0.0 if self.offset is None else self.offset[layer]


def segments(g: Tensor) -> Tensor:
    """Length of each crossing's lead, in segments; (nodes, rails)."""
    rows = torch.arange(1, g.shape[0] + 1, dtype=g.dtype, device=g.device)
    columns = torch.arange(1, g.shape[1] + 1, dtype=g.dtype, device=g.device)
    return rows[:, None] + columns


def fault_shapes(network: ResistiveNetwork) -> dict[str, list[tuple[int, ...]]]:
    """Shapes of every kind of fault, per crossbar or hidden layer."""
    hidden = network.sizes[1:-1]
    return {
        "conductance": [
            (network.sizes[i + 1], network.rail_count(i)) for i in range(network.depth)
        ],
        "saturation": [(2, n) for n in hidden],
        **{name: [(n,) for n in hidden] for name in ("up", "down", "offset")},
    }


@dataclass(frozen=True)
class Tolerances:
    """How wide the components of a production spread, and which circuit of it is meant.

    The one description that the simulation in PyTorch and the netlist are both made from. Factors
    are ``exp(σ·z)``, offsets ``σ·z`` volts, z normal.

    Attributes:
        conductance: σ of the conductances.
        saturation: σ of the diodes' saturation currents.
        up: σ of the amplifiers' voltage gain.
        down: σ of the share of the current they return.
        offset: σ of their offsets, in volts.
        wire: ohms of one segment of a crossbar's wires.
        amplifier_time: time constant of the amplifiers in seconds; only transients see it.
        seed: of this circuit.
    """

    conductance: float = 0.0
    saturation: float = 0.0
    up: float = 0.0
    down: float = 0.0
    offset: float = 0.0
    wire: float = 0.0
    amplifier_time: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in KINDS:
            spread = checks.number(
                f"the spread {name}", getattr(self, name), 0, typical="0.01 to 0.5"
            )
            if spread >= 10:
                raise InvalidInputError(
                    f"the spread {name} must be below 10, got {spread}. Typical: 0.01 to 0.5."
                )
        checks.whole_number("seed", self.seed, 0, 2**63)
        Faults(wire=self.wire, amplifier_time=self.amplifier_time)

    def draw(self, network: ResistiveNetwork) -> Faults:
        """This circuit's faults, in double precision."""
        generator = torch.Generator().manual_seed(self.seed)
        drawn: dict[str, Layers | None] = {}
        shapes = fault_shapes(network)
        for name in KINDS:
            sigma = getattr(self, name)
            # Every kind is drawn, used or not: one spread does not change the others' values.
            normal = [
                torch.randn(shape, generator=generator, dtype=torch.float64)
                for shape in shapes[name]
            ]
            values = [sigma * z if name == "offset" else torch.exp(sigma * z) for z in normal]
            drawn[name] = tuple(values) if sigma else None
        return Faults(**drawn, wire=self.wire, amplifier_time=self.amplifier_time)

    @property
    def none(self) -> bool:
        """Whether the circuit is exactly as drawn."""
        return not any(getattr(self, f.name) for f in fields(self) if f.name != "seed")
