"""Hardware: networks on chips with faults, networks as netlists, ngspice.

Chips count in the units of the network; circuits in volts, siemens, amperes, ohms, farads, seconds.
"""

from toreqprop.energies.circuits import (
    ConductanceNudge,
    Diode,
    Faults,
    ResistiveNetwork,
    thermal_voltage,
)
from toreqprop.energies.devices import Analog, Binary, Converter, Device, Quantised, Ternary
from toreqprop.hardware.budget import Budget, budget
from toreqprop.hardware.chip_certificate import ChipCertificate
from toreqprop.hardware.circuit import Circuit, Noise
from toreqprop.hardware.limits import Limit
from toreqprop.hardware.netlist import netlist
from toreqprop.hardware.neuron_netlist import layered_netlist, looped_netlist
from toreqprop.hardware.ngspice import Measured, Ngspice, SpiceError
from toreqprop.hardware.presets import (
    PCM,
    PRESETS,
    Capacitor,
    EcRam,
    Ideal,
    ReRam,
    ReRamES,
    ReRamSB,
)
from toreqprop.hardware.pulsed import PulsedUpdates, TikiTaka
from toreqprop.hardware.pulses import (
    ConstantStep,
    ExponentialStep,
    LinearStep,
    PulsedDevice,
    Response,
    SoftBounds,
)
from toreqprop.hardware.resistive_netlist import resistive_netlist
from toreqprop.hardware.transient import Settling, settle
from toreqprop.models.on_chip import OnChip, on
from toreqprop.solvers.circuits import BlockDescent, Newton
from toreqprop.solvers.device_phases import DevicePhases

__all__ = [
    "PCM",
    "PRESETS",
    "Analog",
    "Binary",
    "BlockDescent",
    "Budget",
    "Capacitor",
    "ChipCertificate",
    "Circuit",
    "ConductanceNudge",
    "ConstantStep",
    "Converter",
    "Device",
    "DevicePhases",
    "Diode",
    "EcRam",
    "ExponentialStep",
    "Faults",
    "Ideal",
    "Limit",
    "LinearStep",
    "Measured",
    "Newton",
    "Ngspice",
    "Noise",
    "OnChip",
    "PulsedDevice",
    "PulsedUpdates",
    "Quantised",
    "ReRam",
    "ReRamES",
    "ReRamSB",
    "ResistiveNetwork",
    "Response",
    "Settling",
    "SoftBounds",
    "SpiceError",
    "Ternary",
    "TikiTaka",
    "budget",
    "layered_netlist",
    "looped_netlist",
    "netlist",
    "on",
    "resistive_netlist",
    "settle",
    "thermal_voltage",
]
