"""The faults of the sweep: one at a time, from small to large, and some together."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from toreqprop.energies.devices import Binary, Converter, Device, Quantised, Ternary
from toreqprop.errors import InvalidInputError

SETTLE = 15
"""Evaluations before a phase is read: the digits network has settled to 1e-4 by then."""


@dataclass(frozen=True)
class Fault:
    """One point of the sweep: a kind of fault, its size, the device, and options of in-situ EP."""

    kind: str
    size: str
    device: Device
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.kind} {self.size}".strip()

    def chip(self, seed: int) -> Device:
        """The chip of this seed."""
        return replace(self.device, seed=seed)


def _noisy(**faults: Any) -> Device:
    return Device(settle=SETTLE, **faults)


AVERAGE = 32
"""Readings of a phase where they are averaged."""

FAULTS: tuple[Fault, ...] = (
    Fault("none", "", Device()),
    Fault("stuck weights", "20 %", Device(stuck=0.2)),
    Fault("neuron offsets", "0.5", Device(neuron_offset=0.5)),
    Fault("spread of weights", "30 %", Device(spread=0.3)),
    Fault("up/down mismatch", "30 %", Device(up_down=0.3)),
    Fault("weights", "2 bit", Device(weights=Quantised(2))),
    Fault("weights 4 bit, states", "8 bit", _noisy(weights=Quantised(4), states=Converter(8))),
    Fault("read noise, averaged", "0.2", _noisy(read_noise=0.2, average=AVERAGE)),
    Fault("weights", "ternary", Device(weights=Ternary())),
    Fault("stuck weights", "40 %", Device(stuck=0.4)),
    Fault("neuron offsets", "1", Device(neuron_offset=1.0)),
    Fault("spread of weights", "60 %", Device(spread=0.6)),
    Fault("up/down mismatch", "60 %", Device(up_down=0.6)),
    Fault("weights", "4 bit", Device(weights=Quantised(4))),
    Fault("states", "8 bit", _noisy(states=Converter(8))),
    Fault("states", "4 bit", _noisy(states=Converter(4))),
    Fault("states", "2 bit", _noisy(states=Converter(2))),
    Fault("read noise", "0.05", _noisy(read_noise=0.05)),
    Fault("read noise", "0.2", _noisy(read_noise=0.2)),
    Fault("phase offset", "0.02", _noisy(phase_offset=0.02)),
    Fault("phase offset, swapped", "0.02", _noisy(phase_offset=0.02), {"swap": True}),
    Fault("phase offset", "0.1", _noisy(phase_offset=0.1)),
    Fault("phase offset, swapped", "0.1", _noisy(phase_offset=0.1), {"swap": True}),
    Fault("neuron gains", "30 %", Device(neuron_gain=0.3)),
    Fault("weights", "binary", Device(weights=Binary())),
    Fault("write noise", "5 %", Device(write_noise=0.05)),
    Fault("thermal noise, averaged", "0.2",
          _noisy(thermal_noise=0.2, time_step=1.0, average=AVERAGE)),
    Fault("drift", "0.02", _noisy(drift=0.02)),
)  # fmt: skip
"""In the order in which they are measured."""


MAP_NOISE, MAP_BITS = (0.0, 0.02, 0.1, 0.3), (2, 4, 6, 8)

MAP: tuple[Fault, ...] = tuple(
    Fault("map", f"noise {rms:g}, {bits} bit", _noisy(read_noise=rms, states=Converter(bits)))
    for rms in MAP_NOISE
    for bits in MAP_BITS
)
"""Noise of single readings against the resolution of states."""


def named(names: list[str]) -> tuple[Fault, ...]:
    """The faults of these names or kinds; all of them where there are none.

    Raises:
        InvalidInputError: there is no such fault.
    """
    if not names:
        return FAULTS
    found = tuple(f for f in FAULTS if f.name in names or f.kind in names)
    unknown = [n for n in names if not any(n in (f.name, f.kind) for f in FAULTS)]
    if unknown:
        kinds = ", ".join(sorted({f.kind for f in FAULTS}))
        raise InvalidInputError(f"There is no fault {unknown[0]!r}: choose from {kinds}.")
    return found
