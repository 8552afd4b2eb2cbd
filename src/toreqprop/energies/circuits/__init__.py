"""Deep resistive networks: diodes, the parts that do not learn, faults, co-content as energy.

Volts, siemens, amperes, ohms, farads and seconds throughout.
"""

from toreqprop.energies.circuits.diode import Diode, thermal_voltage
from toreqprop.energies.circuits.energy import ResistiveEnergy
from toreqprop.energies.circuits.faults import Faults
from toreqprop.energies.circuits.network import Conductances, ResistiveNetwork, Voltages
from toreqprop.energies.circuits.node_law import DiodePair, NodeLaw
from toreqprop.energies.circuits.nudge import ConductanceNudge
from toreqprop.energies.circuits.wired import Wired

__all__ = [
    "ConductanceNudge",
    "Conductances",
    "Diode",
    "DiodePair",
    "Faults",
    "NodeLaw",
    "ResistiveEnergy",
    "ResistiveNetwork",
    "Voltages",
    "Wired",
    "thermal_voltage",
]
