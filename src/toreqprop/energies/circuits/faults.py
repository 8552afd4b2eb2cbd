"""Faults of a resistive network's components: how wide they spread, and one circuit of many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.energies.devices.device import Device
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


CIRCUIT_FAULTS = (
    "spread", "diode_spread", "neuron_gain", "up_down", "neuron_offset", "wire", "amplifier_time",
)  # fmt: skip
"""What a device may have as a circuit."""


def check_device(device: Device) -> None:
    """Refuse faults that a circuit of resistors, diodes and amplifiers has no place for."""
    for name, _ in device.faults():
        if name not in CIRCUIT_FAULTS:
            raise InvalidInputError(
                f"A resistive network has no place for {name}: use {', '.join(CIRCUIT_FAULTS)}; "
                "noise is what hardware.Ngspice().transient adds."
            )


def draw(device: Device, network: ResistiveNetwork) -> Faults:
    """The faults of this very circuit, in double precision: what both simulations are made from.

    Factors are ``exp(σ·z)``, offsets ``σ·z`` volts, z normal: ``spread`` of the conductances,
    ``diode_spread`` of saturation currents, ``neuron_gain`` of the amplifiers, up and down alike,
    which leaves an energy, ``up_down`` of the current they return beyond that, which does not, and
    ``neuron_offset`` of their offsets.
    """
    check_device(device)
    generator = torch.Generator().manual_seed(device.seed)
    shapes = fault_shapes(network)
    # Every kind is drawn, used or not: one spread does not change the others' values.
    normal = {
        name: [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes[name]]
        for name in KINDS
    }

    def factors(sigma: float, name: str) -> Layers | None:
        return tuple(torch.exp(sigma * z) for z in normal[name]) if sigma else None

    up, returned = factors(device.neuron_gain, "up"), factors(device.up_down, "down")
    down = returned if up is None else up
    if up is not None and returned is not None:
        down = tuple(a * b for a, b in zip(up, returned, strict=True))
    offset = device.neuron_offset
    return Faults(
        conductance=factors(device.spread, "conductance"),
        saturation=factors(device.diode_spread, "saturation"),
        up=up,
        down=down,
        offset=tuple(offset * z for z in normal["offset"]) if offset else None,
        wire=device.wire,
        amplifier_time=device.amplifier_time,
    )
