"""Faults of a resistive network's components, one tensor per component kind and layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from toreqprop.errors import InvalidInputError

if TYPE_CHECKING:
    from toreqprop.hardware.resistive import ResistiveNetwork

Layers = tuple[Tensor, ...]


@dataclass(frozen=True)
class Faults:
    """What differs from the drawing; ``None`` means nothing.

    Attributes:
        conductance: factor of each conductance, (nodes, rails) per crossbar.
        saturation: factor of each diode's I_s, (2, nodes) per hidden layer: the diodes to
            ``+clamp``, then those to ``−clamp``.
        up: factor of each amplifier's voltage gain A, (nodes,) per hidden layer.
        down: factor of each amplifier's current gain 1/A, (nodes,) per hidden layer.
        offset: volts added to each node's voltage at its amplifier, (nodes,) per hidden layer.
    """

    conductance: Layers | None = None
    saturation: Layers | None = None
    up: Layers | None = None
    down: Layers | None = None
    offset: Layers | None = None

    @classmethod
    def draw(
        cls,
        network: ResistiveNetwork,
        seed: int = 0,
        *,
        conductance: float = 0.0,
        saturation: float = 0.0,
        up: float = 0.0,
        down: float = 0.0,
        offset: float = 0.0,
        dtype: torch.dtype = torch.float64,
    ) -> Faults:
        """One circuit of a production: factors ``exp(σ·z)``, offsets ``σ·z`` volts, z normal."""
        spreads = {
            "conductance": conductance,
            "saturation": saturation,
            "up": up,
            "down": down,
            "offset": offset,
        }
        for name, value in spreads.items():
            if not 0 <= value < 10:
                raise InvalidInputError(
                    f"the spread {name} must be >= 0, got {value}. Typical: 0.01 to 0.5"
                )
        generator = torch.Generator().manual_seed(seed)
        hidden = network.sizes[1:-1]
        shapes: dict[str, list[tuple[int, ...]]] = {
            "conductance": [
                (network.sizes[i + 1], network.rail_count(i)) for i in range(network.depth)
            ],
            "saturation": [(2, n) for n in hidden],
        }
        drawn: dict[str, Layers | None] = {}
        for name, sigma in spreads.items():
            # Every kind is drawn, used or not: one spread does not change the others' values.
            normal = [
                torch.randn(shape, generator=generator, dtype=dtype)
                for shape in shapes.get(name, [(n,) for n in hidden])
            ]
            values = [sigma * z if name == "offset" else torch.exp(sigma * z) for z in normal]
            drawn[name] = tuple(values) if sigma else None
        return cls(**drawn)

    def check(self, network: ResistiveNetwork) -> None:
        """Raise one sentence about the first tensor whose shape does not fit the network."""
        hidden = network.sizes[1:-1]
        wanted = {
            "conductance": [
                (network.sizes[i + 1], network.rail_count(i)) for i in range(network.depth)
            ],
            "saturation": [(2, n) for n in hidden],
            **{name: [(n,) for n in hidden] for name in ("up", "down", "offset")},
        }
        for name, shapes in wanted.items():
            given = getattr(self, name)
            found = None if given is None else [tuple(t.shape) for t in given]
            if found is not None and found != shapes:
                raise InvalidInputError(f"faults.{name} must have shapes {shapes}, got {found}")
            if given is not None and not all(bool(torch.isfinite(t).all()) for t in given):
                raise InvalidInputError(f"faults.{name} holds values that are not finite")
            if given is not None and name != "offset" and any(bool((t < 0).any()) for t in given):
                raise InvalidInputError(f"faults.{name} are factors and must be >= 0")

    def to(self, like: Tensor) -> Faults:
        """The same faults in the precision and on the device of a tensor."""
        moved = {
            name: None if layers is None else tuple(t.to(like) for t in layers)
            for name, layers in vars(self).items()
        }
        return Faults(**moved)

    def conductances(self, nominal: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The conductances that are really there."""
        if self.conductance is None:
            return nominal
        return tuple(g * f for g, f in zip(nominal, self.conductance, strict=True))

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
