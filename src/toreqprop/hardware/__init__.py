"""Circuits: networks as netlists, ngspice, and what differs from the drawing.

Volts, siemens, amperes, ohms, farads and seconds throughout.
"""

from toreqprop.energies.circuits import (
    ConductanceNudge,
    Diode,
    Faults,
    ResistiveNetwork,
    Tolerances,
    thermal_voltage,
)
from toreqprop.hardware.circuit import Circuit, Noise
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
from toreqprop.solvers.circuits import BlockDescent, Newton

__all__ = [
    "PCM",
    "PRESETS",
    "BlockDescent",
    "Capacitor",
    "Circuit",
    "ConductanceNudge",
    "ConstantStep",
    "Diode",
    "EcRam",
    "ExponentialStep",
    "Faults",
    "Ideal",
    "LinearStep",
    "Measured",
    "Newton",
    "Ngspice",
    "Noise",
    "PulsedDevice",
    "PulsedUpdates",
    "ReRam",
    "ReRamES",
    "ReRamSB",
    "ResistiveNetwork",
    "Response",
    "Settling",
    "SoftBounds",
    "SpiceError",
    "TikiTaka",
    "Tolerances",
    "layered_netlist",
    "looped_netlist",
    "netlist",
    "resistive_netlist",
    "settle",
    "thermal_voltage",
]
