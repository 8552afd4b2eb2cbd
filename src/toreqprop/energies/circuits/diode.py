"""The diode law exactly as ngspice 39 evaluates it, constants and reverse branch included.

    I(v) = I_s·(exp(v/nV_t) − 1) + gmin·v          for v ≥ −3nV_t
    I(v) = −I_s·(1 + (3nV_t/(e·v))³) + gmin·v      below

Both pieces meet with equal slope. Volts, amperes, siemens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from toreqprop.errors import InvalidInputError

BOLTZMANN = 1.38064852e-23
"""k in J/K as ngspice 39 has it (CODATA 2014)."""

ELEMENTARY_CHARGE = 1.6021766208e-19
"""q in C as ngspice 39 has it (CODATA 2014)."""

ZERO_CELSIUS = 273.15
"""0 °C in kelvin."""

NOMINAL_CELSIUS = 27.0
"""The temperature at which saturation currents are given: SPICE's ``TNOM``."""

GMIN = 1e-18
"""Conductance in S that ngspice puts across each junction, as set by the options used here."""

ENERGY_GAP = 1.11
"""SPICE's default ``EG`` in eV."""

SATURATION_EXPONENT = 3.0
"""SPICE's default ``XTI``."""


def thermal_voltage(celsius: float = NOMINAL_CELSIUS) -> float:
    """``V_t = kT/q`` in volts; 25.8649 mV at 27 °C."""
    return BOLTZMANN * (celsius + ZERO_CELSIUS) / ELEMENTARY_CHARGE


@dataclass(frozen=True)
class Diode:
    """One diode's parameters at 27 °C.

    Attributes:
        saturation: I_s in amperes.
        emission: ideality factor n.
    """

    saturation: float = 1e-8
    emission: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.saturation < math.inf:
            raise InvalidInputError(
                f"saturation must be a current > 0 A, got {self.saturation}. Typical: 1e-14 to 1e-6"
            )
        if not 0 < self.emission < math.inf:
            raise InvalidInputError(f"emission must be > 0, got {self.emission}. Typical: 1 to 2")

    def scale(self, celsius: float) -> float:
        """``n·V_t`` in volts."""
        return self.emission * thermal_voltage(celsius)

    def saturation_at(self, celsius: float) -> float:
        """I_s at a temperature: ``I_s·exp((T/T₀ − 1)·E_g/(nV_t) + X_ti/n·log(T/T₀))``."""
        ratio = (celsius + ZERO_CELSIUS) / (NOMINAL_CELSIUS + ZERO_CELSIUS)
        exponent = (ratio - 1) * ENERGY_GAP / self.scale(celsius)
        exponent += SATURATION_EXPONENT / self.emission * math.log(ratio)
        return self.saturation * math.exp(exponent)


def diode_law(v: Tensor, saturation: Tensor | float, scale: float) -> tuple[Tensor, Tensor]:
    """``I(v)`` in amperes and ``dI/dv`` in siemens; ``scale`` is ``n·V_t``."""
    knee = -3 * scale
    forward = v >= knee
    growth = torch.expm1(v.clamp(min=knee) / scale)
    below = v.clamp(max=knee)
    third = 3 * scale / (math.e * below)
    cube = third * third * third
    current = saturation * torch.where(forward, growth, -1 - cube) + GMIN * v
    slope = saturation * torch.where(forward, (1 + growth) / scale, 3 * cube / below) + GMIN
    return current, slope


def diode_co_content(v: Tensor, saturation: Tensor | float, scale: float) -> Tensor:
    """``∫₀^v I dv`` in watts."""
    knee = -3 * scale
    clamped = v.clamp(min=knee)
    forward = scale * torch.expm1(clamped / scale) - clamped
    below = v.clamp(max=knee)
    cube = (3 * scale / math.e) ** 3
    reverse = -(below - knee) + 0.5 * cube * (below**-2 - knee**-2)
    return saturation * (forward + reverse) + 0.5 * GMIN * v * v
