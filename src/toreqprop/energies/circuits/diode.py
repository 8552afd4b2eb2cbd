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

from toreqprop import checks

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
    checks.number("celsius", celsius, -ZERO_CELSIUS, above=True, typical="27")
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
        checks.number("saturation", self.saturation, 0, above=True, typical="1e-14 to 1e-6 A")
        checks.number("emission", self.emission, 0, above=True, typical="1 to 2")

    def scale(self, celsius: float) -> float:
        """``n·V_t`` in volts."""
        return self.emission * thermal_voltage(celsius)

    def saturation_at(self, celsius: float) -> float:
        """I_s at a temperature: ``I_s·exp((T/T₀ − 1)·E_g/(nV_t) + X_ti/n·log(T/T₀))``."""
        ratio = (celsius + ZERO_CELSIUS) / (NOMINAL_CELSIUS + ZERO_CELSIUS)
        exponent = (ratio - 1) * ENERGY_GAP / self.scale(celsius)
        exponent += SATURATION_EXPONENT / self.emission * math.log(ratio)
        return self.saturation * math.exp(exponent)


def diode_law(
    v: Tensor, saturation: Tensor | float, scale: float, gmin: float = GMIN
) -> tuple[Tensor, Tensor]:
    """``I(v)`` in amperes and ``dI/dv`` in siemens; ``scale`` is ``n·V_t``."""
    knee = -3 * scale
    forward = v >= knee
    growth = torch.expm1(v.clamp(min=knee) / scale)
    below = v.clamp(max=knee)
    third = 3 * scale / (math.e * below)
    cube = third * third * third
    current = saturation * torch.where(forward, growth, -1 - cube) + gmin * v
    slope = saturation * torch.where(forward, (1 + growth) / scale, 3 * cube / below) + gmin
    return current, slope


def diode_difference(
    center: Tensor, shift: Tensor, saturation: Tensor | float, scale: float, gmin: float = GMIN
) -> tuple[Tensor, Tensor]:
    """Mean and half difference of `diode_law`'s currents at ``center ± shift``.

    ``½(e^(x+d) − e^(x−d)) = e^x·sinh d``, and so on: nothing of the size of the center cancels.
    """
    x, d = center / scale, shift / scale
    forward = x >= -3
    grown = torch.exp(x)
    beyond = x.clamp(max=-3)
    ratio = d / beyond
    square = ratio * ratio
    third = (3 / math.e) / (beyond * (1 - square))
    cube = third * third * third
    mean = torch.where(forward, grown * torch.cosh(d), -cube * (1 + 3 * square)) - 1
    half = torch.where(forward, grown * torch.sinh(d), cube * ratio * (3 + square))
    # Where the two phases lie on either side of the seam, the pieces are evaluated one by one.
    seam = ((x + 3).abs() <= d.abs()).nonzero(as_tuple=True)
    if len(seam[0]):
        c, h = center[seam].double(), shift[seam].double()
        (up, _), (down, _) = diode_law(c + h, 1.0, scale, 0.0), diode_law(c - h, 1.0, scale, 0.0)
        mean[seam], half[seam] = (0.5 * (up + down)).to(mean), (0.5 * (up - down)).to(half)
    return saturation * mean + gmin * center, saturation * half + gmin * shift


def diode_co_content(
    v: Tensor, saturation: Tensor | float, scale: float, gmin: float = GMIN
) -> Tensor:
    """``∫₀^v I dv`` in watts."""
    knee = -3 * scale
    clamped = v.clamp(min=knee)
    forward = scale * torch.expm1(clamped / scale) - clamped
    below = v.clamp(max=knee)
    cube = (3 * scale / math.e) ** 3
    reverse = -(below - knee) + 0.5 * cube * (below**-2 - knee**-2)
    return saturation * (forward + reverse) + 0.5 * gmin * v * v


def symmetric_law(v: Tensor, saturation: float, scale: float, gmin: float) -> tuple[Tensor, Tensor]:
    """``I(v) − I(−v)`` and its slope: with ``a = |v|/nV_t``, ``±I_s·(e^a − r(a))``.

    ``r = e^(−a)`` up to a = 3 and ``(3/(e·a))³`` beyond, the diode in reverse.
    """
    a = v.abs() / scale
    grown, _, back, steep = _sides(a)
    current = torch.copysign(saturation * (grown - back), v)
    return current + 2 * gmin * v, (saturation / scale) * (grown + steep) + 2 * gmin


def symmetric_difference(
    center: Tensor, shift: Tensor, saturation: float, scale: float, gmin: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and half difference of `symmetric_law` at ``center ± shift``, and its mean slope.

    ``½(e^(a+d) − e^(a−d)) = e^a·sinh d``, and so on: nothing of the size of the center cancels.
    """
    a = center.abs() / scale
    d = torch.copysign(shift, center * shift) / scale
    grown, inside, back, steep = _sides(a)
    odd, even = torch.sinh(d), torch.cosh(d)
    ratio = d / a.clamp(min=3)
    square = ratio * ratio
    whole = 1 / (1 - square)
    whole = back * whole * whole * whole
    mean_back = torch.where(inside, back * even, whole * (1 + 3 * square))
    half_back = torch.where(inside, back * odd, whole * ratio * (3 + square))
    sign = torch.copysign(torch.ones_like(center), center)
    mean = sign * (saturation * (grown * even - mean_back))
    half = sign * (saturation * (grown * odd + half_back))
    # Where the two phases lie on either side of the seam, the pieces are evaluated one by one.
    seam = ((a - 3).abs() <= d.abs()).nonzero(as_tuple=True)
    if len(seam[0]):
        c, h = center[seam].double(), shift[seam].double()
        up, down = (symmetric_law(v, saturation, scale, 0.0)[0] for v in (c + h, c - h))
        mean[seam], half[seam] = (0.5 * (up + down)).to(mean), (0.5 * (up - down)).to(half)
    leak = 2 * gmin
    slope = (saturation / scale) * (grown * even + steep) + leak
    return mean + leak * center, half + leak * shift, slope


def _sides(a: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``e^a``, whether ``a ≤ 3``, the reverse diode's r(a) and ``−r'(a)``."""
    grown = torch.exp(a)
    inside = a <= 3
    decayed = 1 / grown
    beyond = a.clamp(min=3)
    third = (3 / math.e) / beyond
    cube = third * third * third
    back = torch.where(inside, decayed, cube)
    return grown, inside, back, torch.where(inside, decayed, 3 * cube / beyond)
