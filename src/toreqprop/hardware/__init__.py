"""Circuits: resistive networks in PyTorch, networks as netlists, and ngspice.

Volts, siemens, amperes, farads and seconds throughout.
"""

from toreqprop.hardware.circuit import Circuit, Noise
from toreqprop.hardware.circuit_solution import CircuitSolution, CircuitStatus
from toreqprop.hardware.diode import Diode, thermal_voltage
from toreqprop.hardware.faults import Faults
from toreqprop.hardware.in_situ import nudged_gradients, nudged_phases, updated
from toreqprop.hardware.neuron_netlist import layered_netlist, looped_netlist
from toreqprop.hardware.ngspice import Measured, Ngspice, SpiceError
from toreqprop.hardware.resistive import ResistiveNetwork, co_content, conductance_gradients
from toreqprop.hardware.resistive_netlist import resistive_netlist
from toreqprop.hardware.resistive_solvers import BlockDescent, Newton, solve_circuit

__all__ = [
    "BlockDescent",
    "Circuit",
    "CircuitSolution",
    "CircuitStatus",
    "Diode",
    "Faults",
    "Measured",
    "Newton",
    "Ngspice",
    "Noise",
    "ResistiveNetwork",
    "SpiceError",
    "co_content",
    "conductance_gradients",
    "layered_netlist",
    "looped_netlist",
    "nudged_gradients",
    "nudged_phases",
    "resistive_netlist",
    "solve_circuit",
    "thermal_voltage",
    "updated",
]
