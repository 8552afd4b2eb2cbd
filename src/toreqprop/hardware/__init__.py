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
from toreqprop.hardware.resistive_netlist import resistive_netlist
from toreqprop.hardware.transient import Settling, settle
from toreqprop.solvers.circuits import BlockDescent, Newton

__all__ = [
    "BlockDescent",
    "Circuit",
    "ConductanceNudge",
    "Diode",
    "Faults",
    "Measured",
    "Newton",
    "Ngspice",
    "Noise",
    "ResistiveNetwork",
    "Settling",
    "SpiceError",
    "Tolerances",
    "layered_netlist",
    "looped_netlist",
    "netlist",
    "resistive_netlist",
    "settle",
    "thermal_voltage",
]
