"""Devices: what differs between a network as it is written down and one that is built.

Weights and states in the units of the network, time in evaluations of its map.
"""

from toreqprop.energies.devices.converter import Converter
from toreqprop.energies.devices.device import Device
from toreqprop.energies.devices.field import DeviceField
from toreqprop.energies.devices.weights import STORES, Analog, Binary, Quantised, Store, Ternary

__all__ = [
    "STORES",
    "Analog",
    "Binary",
    "Converter",
    "Device",
    "DeviceField",
    "Quantised",
    "Store",
    "Ternary",
]
