"""What one node does on its own: a conductance, a pair of diodes, and the inverse of their law."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from toreqprop.energies.activations import HIGHER, Activation
from toreqprop.energies.circuits.diode import (
    diode_co_content,
    diode_difference,
    diode_law,
    symmetric_difference,
    symmetric_law,
)
from toreqprop.energies.pairs import Pair, Signal


class DiodePair(NamedTuple):
    """The diode pairs of one hidden layer: I_s of both, ``n·V_t``, the clamp voltage and gmin.

    The I_s and gmin may be counted in any unit of conductance; currents then are too.
    """

    positive: Tensor | float
    negative: Tensor | float
    scale: float
    clamp: float
    gmin: float

    @property
    def symmetric(self) -> bool:
        """Whether both diodes are equal and lead to ground: then one exponential serves both."""
        return (
            self.clamp == 0 and isinstance(self.positive, float) and self.positive == self.negative
        )

    def law(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Current that leaves the node, and its slope."""
        if self.symmetric:
            return symmetric_law(v, self.positive, self.scale, self.gmin)  # type: ignore[arg-type]
        above, slope_above = diode_law(v - self.clamp, self.positive, self.scale, self.gmin)
        below, slope_below = diode_law(-v - self.clamp, self.negative, self.scale, self.gmin)
        return above - below, slope_above + slope_below

    def difference(self, center: Tensor, shift: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and half difference of the currents at ``center ± shift``, without cancellation, and
        a slope between them."""
        if self.symmetric:
            saturation: float = self.positive  # type: ignore[assignment]
            return symmetric_difference(center, shift, saturation, self.scale, self.gmin)
        above = diode_difference(center - self.clamp, shift, self.positive, self.scale, self.gmin)
        below = diode_difference(-center - self.clamp, -shift, self.negative, self.scale, self.gmin)
        _, slope = self.law(center)
        return above[0] - below[0], above[1] - below[1], slope

    def co_content(self, v: Tensor) -> Tensor:
        """Integral of the current from zero."""
        above = diode_co_content(v - self.clamp, self.positive, self.scale, self.gmin)
        below = diode_co_content(-v - self.clamp, self.negative, self.scale, self.gmin)
        return above + below

    def voltage(
        self, current: Tensor, total: Tensor | float, tol: float = 0.0, steps: int = 60
    ) -> Tensor:
        """``v`` with ``total·v + I(v) = current``, to ``tol`` volts or rounding.

        Newton from outside: the equation is convex beyond the knee, so it cannot overshoot.
        """
        positive, negative = (
            torch.as_tensor(part, dtype=current.dtype, device=current.device)
            for part in (self.positive, self.negative)
        )
        reach = (current.abs() + positive + negative) / torch.minimum(positive, negative)
        bound = self.clamp + self.scale * torch.log1p(reach)
        v = torch.maximum(torch.minimum(current / total, bound), -bound)
        tiny = 4 * torch.finfo(v.dtype).eps
        for _ in range(steps):
            through, slope = self.law(v)
            step = (total * v + through - current) / (total + slope)
            v = torch.maximum(torch.minimum(v - step, bound), -bound)
            if bool((step.abs() <= tol + tiny * v.abs()).all()):
                break
        return v


def diode_current(pair: DiodePair, v: Signal) -> tuple[Signal, Tensor]:
    """Current through the diodes, of one phase or two, and a slope."""
    if not isinstance(v, Pair):
        return pair.law(v)
    mean, half, slope = pair.difference(v.center, v.shift)
    return Pair(mean, half), slope


def differenced(function: Any, value: Signal) -> Signal:
    """A function of one signal, or of two as the mean and half difference, formed in double."""
    if not isinstance(value, Pair):
        return function(value)
    dtype = value.dtype
    exact = HIGHER.get(dtype, dtype)
    center, shift = value.center.to(exact), value.shift.to(exact)
    up, down = function(center + shift), function(center - shift)
    return Pair((0.5 * (up + down)).to(dtype), (0.5 * (up - down)).to(dtype))


@dataclass(frozen=True)
class NodeLaw(Activation):
    """σ is the inverse of ``s ↦ c·s + I(s)``, G its integral ``½c·s² + ∫I``.

    Attributes:
        conductance: c, in units of the energy's scale.
        diodes: the pair, in the same unit; None for a plain node, where ``σ(u) = u/c``.
    """

    conductance: float
    diodes: DiodePair | None = None

    @property
    def reach(self) -> float:
        return float("inf")

    def __call__(self, preactivation: Tensor) -> Tensor:
        if self.diodes is None:
            return preactivation / self.conductance
        with torch.no_grad():
            found = self.diodes.voltage(preactivation, self.conductance)
            _, slope = self.diodes.law(found)
        if not preactivation.requires_grad:
            return found
        # One more step of Newton carries the derivative 1/(c + I'(s)).
        steepness = self.conductance + slope
        left = (preactivation - self.inverse(found)) / steepness
        return found + left

    def inverse(self, state: Tensor) -> Tensor:
        linear = self.conductance * state
        return linear if self.diodes is None else linear + self.diodes.law(state)[0]

    def potential(self, state: Tensor) -> Tensor:
        quadratic = 0.5 * self.conductance * state * state
        return quadratic if self.diodes is None else quadratic + self.diodes.co_content(state)
