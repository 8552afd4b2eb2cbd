"""Devices that are programmed by pulses: how far one pulse moves a weight, up or down.

A pulse in direction d = ±1 moves a weight w by

    d·Δ_d·(y_d(w) + σ_c·z),    Δ_d = dw_min·|1 + d·β + σ_s·z₁|,    β = up_down + σ_β·z₂,

with z normal: z₁ and z₂ once for each device (z₁ the same in both directions, so that a spread of
steps is no asymmetry), z anew at every pulse. The response y_d(w) is the kind of device; hard
bounds end its range. Weights are in device units, of about one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.errors import InvalidInputError


class Response(ABC):
    """``y_d(w)``: the size of a pulse at a weight, in units of the device's step."""

    def slopes(self, draw: Draw) -> tuple[Tensor | float, Tensor | float]:
        """What of the response differs from device to device, for up and down."""
        return 0.0, 0.0

    @abstractmethod
    def up(self, weight: Tensor, devices: DrawnDevices) -> Tensor:
        """``y_+(w)``, not negative."""

    @abstractmethod
    def down(self, weight: Tensor, devices: DrawnDevices) -> Tensor:
        """``y_−(w)``, not negative."""


@dataclass(frozen=True)
class ConstantStep(Response):
    """``y = 1`` up to the hard bounds (Gokmen and Vlasov 2016)."""

    def up(self, weight: Tensor, devices: DrawnDevices) -> Tensor:
        return torch.ones_like(weight)

    def down(self, weight: Tensor, devices: DrawnDevices) -> Tensor:
        return torch.ones_like(weight)


@dataclass(frozen=True)
class LinearStep(Response):
    """``y_+ = 1 − γ_+·w/w_max``, ``y_− = 1 − γ_−·w/w_min``: steps that shrink towards a bound.

    Attributes:
        gamma_up, gamma_down: γ, the share that is lost at the bound.
        gamma_up_dtod, gamma_down_dtod: its standard deviation over devices.
    """

    gamma_up: float = 0.0
    gamma_down: float = 0.0
    gamma_up_dtod: float = 0.0
    gamma_down_dtod: float = 0.0

    def __post_init__(self) -> None:
        for name in ("gamma_up", "gamma_down", "gamma_up_dtod", "gamma_down_dtod"):
            checks.number(name, getattr(self, name), 0, typical="0 to 1")

    def slopes(self, draw: Draw) -> tuple[Tensor | float, Tensor | float]:
        up = (self.gamma_up + self.gamma_up_dtod * draw()).abs()
        down = (self.gamma_down + self.gamma_down_dtod * draw()).abs()
        return up, down

    def up(self, weight: Tensor, devices: DrawnDevices) -> Tensor:
        return (1 - devices.slope_up * weight / devices.w_max).clamp_min(0)

    def down(self, weight: Tensor, devices: DrawnDevices) -> Tensor:
        return (1 - devices.slope_down * weight / devices.w_min).clamp_min(0)


@dataclass(frozen=True)
class SoftBounds(Response):
    """``y_+ = 1 − w/w_max``, ``y_− = 1 − w/w_min``: no step is left at the bound."""

    def up(self, weight: Tensor, devices: DrawnDevices) -> Tensor:
        return (1 - weight / devices.w_max).clamp_min(0)

    def down(self, weight: Tensor, devices: DrawnDevices) -> Tensor:
        return (1 - weight / devices.w_min).clamp_min(0)


@dataclass(frozen=True)
class ExponentialStep(Response):
    """``y_d = 1 − A_d·e^(d·γ_d·z)`` with ``z = 2a·w/(w_max − w_min) + b``.

    Attributes:
        a, b: where on the curve a weight lies.
        gamma_up, gamma_down: γ_+ and γ_−.
        A_up, A_down: A_+ and A_−.
    """

    a: float = -0.5
    b: float = -0.5
    gamma_up: float = 5.0
    gamma_down: float = 5.0
    A_up: float = -1.0
    A_down: float = -1.0

    def __post_init__(self) -> None:
        for name in ("a", "b", "gamma_up", "gamma_down", "A_up", "A_down"):
            checks.number(name, getattr(self, name))

    def _place(self, weight: Tensor, devices: DrawnDevices) -> Tensor:
        return 2 * self.a * weight / (devices.w_max - devices.w_min) + self.b

    def up(self, weight: Tensor, devices: DrawnDevices) -> Tensor:
        z = self._place(weight, devices)
        return (1 - self.A_up * torch.exp(self.gamma_up * z)).clamp_min(0)

    def down(self, weight: Tensor, devices: DrawnDevices) -> Tensor:
        z = self._place(weight, devices)
        return (1 - self.A_down * torch.exp(-self.gamma_down * z)).clamp_min(0)


@dataclass(frozen=True)
class PulsedDevice:
    """A kind of device, and which sample of it is meant; parameters are named as aihwkit's.

    Attributes:
        response: how a pulse depends on the weight.
        dw_min: mean step of one pulse at its reference weight.
        up_down: β, by what share steps up are larger than the mean, and steps down smaller.
        w_min, w_max: hard bounds.
        dw_min_dtod, up_down_dtod: standard deviations over devices, relative to ``dw_min``.
        w_min_dtod, w_max_dtod: standard deviations over devices, relative to the bounds.
        dw_min_std: standard deviation from pulse to pulse, relative to ``dw_min``.
        mult_noise: the noise of a pulse scales with its size, ``Δ·y·(1 + σz)``, and dies out where
            the steps do; otherwise ``Δ·(y + σz)``.
        write_noise_std: standard deviation, in units of ``dw_min``, of what is read of a weight
            after a pulse around what is stored; drawn anew when it is written again.
        lifetime: steps of the optimizer in which a stored weight decays to 1/e; zero is for ever.
        pair: weights are differences of two devices that pulses can only raise, ``w = g₊ − g₋``;
            a pair that is nearly full is read, erased and written again.
        seed: of the sample: the same seed gives the same devices.
    """

    response: Response = field(default_factory=ConstantStep)
    dw_min: float = 0.001
    up_down: float = 0.0
    w_min: float = -1.0
    w_max: float = 1.0
    dw_min_dtod: float = 0.0
    up_down_dtod: float = 0.0
    w_min_dtod: float = 0.0
    w_max_dtod: float = 0.0
    dw_min_std: float = 0.0
    mult_noise: bool = True
    write_noise_std: float = 0.0
    lifetime: float = 0.0
    pair: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        checks.instance("response", self.response, Response, "use SoftBounds()")
        checks.flag("mult_noise", self.mult_noise)
        checks.flag("pair", self.pair)
        checks.number("dw_min", self.dw_min, 0, above=True, typical="1e-4 to 0.01")
        checks.number("up_down", self.up_down, typical="-0.3 to 0.3")
        if not -1 < self.up_down < 1:
            raise InvalidInputError(
                f"up_down must be between -1 and 1, got {self.up_down}: steps in one direction "
                "would vanish. Typical: -0.3 to 0.3."
            )
        checks.number("w_max", self.w_max, 0, above=True, typical="1")
        checks.number("w_min", self.w_min, typical="-1")
        if self.w_min > 0 or (self.w_min == 0) is not self.pair:
            raise InvalidInputError(
                f"w_min must be < 0, or 0 for a pair=True, got {self.w_min} and pair={self.pair}."
            )
        for name in ("dw_min", "up_down", "w_min", "w_max"):
            checks.number(f"{name}_dtod", getattr(self, f"{name}_dtod"), 0, typical="0 to 0.3")
        for name in ("dw_min_std", "write_noise_std", "lifetime"):
            checks.number(name, getattr(self, name), 0)
        checks.whole_number("seed", self.seed, 0, 2**31)

    @cached_property
    def step(self) -> float:
        """The nominal step: the mean of one up and one down of a device without spread, at zero; of
        a pair up, half-way."""
        plain = replace(self, dw_min_dtod=0, up_down_dtod=0, w_min_dtod=0, w_max_dtod=0)
        zero = torch.zeros(1, dtype=torch.float64)
        devices = plain.draw((1,)).to(zero)
        if self.pair:
            return float(devices.up(devices.w_max / 2))
        return 0.5 * float(devices.up(zero) + devices.down(zero))

    def draw(self, shape: torch.Size | tuple[int, ...], number: int = 0) -> DrawnDevices:
        """Devices of this sample for the ``number``-th array, of this shape."""
        # Torch uses 32 bits of a seed: sums of two would make arrays of one chip those of another.
        mixed = int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0])
        generator = torch.Generator().manual_seed(mixed)
        return DrawnDevices(self, Draw(tuple(shape), generator))


@dataclass(frozen=True)
class Draw:
    """Normal numbers for an array of devices."""

    shape: tuple[int, ...]
    generator: torch.Generator

    def __call__(self) -> Tensor:
        return torch.randn(self.shape, generator=self.generator)


class DrawnDevices:
    """An array of devices: their own steps, bounds and slopes."""

    def __init__(self, device: PulsedDevice, draw: Draw) -> None:
        self.device = device
        # Every kind is drawn, used or not: one spread does not change the others' values.
        size, bias, low, high = draw(), draw(), draw(), draw()
        step = 1 + device.dw_min_dtod * size
        beta = device.up_down + device.up_down_dtod * bias
        self.step_up = device.dw_min * (step + beta).abs()
        self.step_down = device.dw_min * (step - beta).abs()
        # A bound keeps its side: a device without a range would hold no weight.
        least = 0.01 * device.w_max
        self.w_max = (device.w_max * (1 + device.w_max_dtod * high)).clamp_min(least)
        self.w_min = device.w_min * (1 + device.w_min_dtod * low)
        if not device.pair:
            self.w_min = self.w_min.clamp_max(-least)
        self.slope_up, self.slope_down = device.response.slopes(draw)

    def to(self, like: Tensor) -> DrawnDevices:
        """The same devices in the precision and place of a tensor."""
        moved = object.__new__(DrawnDevices)
        for name, value in vars(self).items():
            setattr(moved, name, value.to(like) if isinstance(value, Tensor) else value)
        return moved

    def up(self, weight: Tensor) -> Tensor:
        """Mean step of a pulse up."""
        return self.step_up * self.device.response.up(weight, self)

    def down(self, weight: Tensor) -> Tensor:
        """Mean step of a pulse down, as a positive number."""
        return self.step_down * self.device.response.down(weight, self)

    def pulsed(self, weight: Tensor, counts: Tensor, noise: torch.Generator) -> Tensor:
        """The weights after so many pulses each, down where a count is negative, one by one."""
        device = self.device
        upwards, left = counts > 0, counts.abs()
        for pulse in range(int(left.max()) if left.numel() else 0):
            step = torch.where(upwards, self.up(weight), self.down(weight))
            if device.dw_min_std:
                normal = torch.randn(weight.shape, generator=noise).to(weight)
                unit = step if device.mult_noise else device.dw_min
                step = step + unit * device.dw_min_std * normal
            moved = weight + torch.where(upwards, step, -step)
            moved = torch.minimum(torch.maximum(moved, self.w_min), self.w_max)
            weight = torch.where(left > pulse, moved, weight)
        return weight

    def symmetric_point(self) -> Tensor:
        """The weight of each device at which steps up and down are equal; by bisection, as steps
        up shrink and steps down grow with the weight. A bound, where they never are.

        Raises:
            InvalidInputError: steps that do not depend on the weight have no such point.
        """
        if isinstance(self.device.response, ConstantStep) or self.device.pair:
            raise InvalidInputError(
                "A constant step or a pair has no symmetric point: use SoftBounds(), LinearStep() "
                "or ExponentialStep()."
            )
        low, high = self.w_min.double(), self.w_max.double()
        exact = self.to(low)
        for _ in range(60):
            middle = 0.5 * (low + high)
            below = exact.up(middle) > exact.down(middle)
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return (0.5 * (low + high)).to(self.w_min)
