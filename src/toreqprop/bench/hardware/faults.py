"""The faults of the sweep: one at a time, from small to large, and some together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from toreqprop.energies.devices import Binary, Converter, Device, Quantised, Ternary
from toreqprop.errors import InvalidInputError

SETTLE = 15
"""Evaluations before a phase is read: the digits network has settled to 1e-4 by then."""


@dataclass(frozen=True)
class Fault:
    """One point of the sweep: a kind of fault, its size and the device.

    ``swap``: learning in place swaps its nudged phases at random. ``claimed``: something is claimed
    of it, so that every method gets a search of its own under this fault, and as many chips as a
    verdict takes; others take the settings found without faults and a few chips.
    """

    kind: str
    size: str
    device: Device
    swap: bool = False
    claimed: bool = False

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

TWO_BITS = Quantised(2, clip=1.5)
"""Two bits whose scale suits them: 1, 1.5 and 2 did alike on held-out data, for every method; with
the largest weight as scale most of them are zero."""


def _claimed() -> tuple[Fault, ...]:
    found = (
        ("none", "", Device()),
        ("stuck weights", "20 %", Device(stuck=0.2)),
        ("neuron offsets", "0.5", Device(neuron_offset=0.5)),
        ("spread of weights", "30 %", Device(spread=0.3)),
        ("up/down mismatch", "30 %", Device(up_down=0.3)),
        ("weights", "2 bit", Device(weights=TWO_BITS)),
        ("weights", "2 bit, spread 30 %", Device(weights=TWO_BITS, spread=0.3)),
        ("weights 4 bit, states", "8 bit", _noisy(weights=Quantised(4), states=Converter(8))),
        ("read noise, averaged", "0.2", _noisy(read_noise=0.2, average=AVERAGE)),
        ("weights", "ternary", Device(weights=Ternary())),
    )
    return tuple(Fault(kind, size, device, claimed=True) for kind, size, device in found)


FAULTS: tuple[Fault, ...] = (
    *_claimed(),
    Fault("stuck weights", "40 %", Device(stuck=0.4)),
    Fault("neuron offsets", "1", Device(neuron_offset=1.0)),
    Fault("neuron gains", "30 %", Device(neuron_gain=0.3)),
    Fault("spread of weights", "60 %", Device(spread=0.6)),
    Fault("up/down mismatch", "60 %", Device(up_down=0.6)),
    Fault("weights", "2 bit, scaled by the largest", Device(weights=Quantised(2))),
    Fault("weights", "4 bit", Device(weights=Quantised(4))),
    Fault("weights", "binary", Device(weights=Binary())),
    Fault("write noise", "5 %", Device(write_noise=0.05)),
    Fault("states", "8 bit", _noisy(states=Converter(8))),
    Fault("states", "4 bit", _noisy(states=Converter(4))),
    Fault("states", "2 bit", _noisy(states=Converter(2))),
    Fault("read noise", "0.05", _noisy(read_noise=0.05)),
    Fault("read noise", "0.2", _noisy(read_noise=0.2)),
    Fault("phase offset", "0.02", _noisy(phase_offset=0.02)),
    Fault("phase offset, swapped", "0.02", _noisy(phase_offset=0.02), swap=True),
    Fault("phase offset", "0.1", _noisy(phase_offset=0.1)),
    Fault("phase offset, swapped", "0.1", _noisy(phase_offset=0.1), swap=True),
    Fault("thermal noise, averaged", "0.2",
          _noisy(thermal_noise=0.2, time_step=1.0, average=AVERAGE)),
    Fault("drift", "0.02", _noisy(drift=0.02)),
)  # fmt: skip
"""Those of which something is claimed, then the others."""


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
