"""From weights as they are written to weights as they are on a chip."""

from __future__ import annotations

import torch
from torch import Tensor

from toreqprop.energies.devices.device import Device
from toreqprop.private_generator import noise


def write_noise(device: Device, weight: Tensor) -> Tensor:
    """``write_noise·max|w|·ξ``, drawn anew."""
    drawn = torch.randn(weight.shape, generator=noise(), dtype=weight.dtype).to(weight.device)
    return device.write_noise * device.weights.bound(weight) * drawn


@torch.no_grad()
def programmed(
    device: Device,
    index: int,
    weight: Tensor,
    *,
    symmetric: bool = False,
    written: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The weights of one matrix on the way up, and on the way down.

    ``index`` numbers the matrices of a network; ``symmetric`` says that entries (i, j) and (j, i)
    are one device, read in two directions; ``written`` is the noise with which they were written.
    """
    shape = tuple(weight.shape)
    found = device.weights(weight)
    if written is not None:
        found = found + _mirrored(written, symmetric)
    if device.spread:
        z = _mirrored(device.normal("spread", index, shape), symmetric).to(weight)
        found = found * torch.exp(device.spread * z)
    if device.stuck:
        found = torch.where(*_stuck(device, index, weight, symmetric), found)
    if device.drift and device.age:
        found = found * (1 + device.age) ** -device.drift
    if not device.up_down:
        return found, found
    z = device.normal("mismatch", index, shape).to(weight)
    if symmetric:
        z = torch.triu(z, 1) - torch.triu(z, 1).mT
    half = torch.exp(0.5 * device.up_down * z)
    return found * half, found / half


def _stuck(device: Device, index: int, weight: Tensor, symmetric: bool) -> tuple[Tensor, Tensor]:
    """Which weights are stuck, and where."""
    shape = tuple(weight.shape)
    draw = _mirrored(device.uniform("stuck", index, shape), symmetric).to(weight.device)
    kind = _mirrored(device.uniform("stuck_at", index, shape), symmetric).to(weight.device)
    at_zero = {"zero": 1.0, "bound": 0.0, "either": 0.5}[device.stuck_at]
    bound = device.weights.bound(weight)
    # What is left of the draw decides the sign of those that are stuck at a bound.
    sign = torch.where(kind < 0.5 * (1 + at_zero), -1.0, 1.0).to(weight)
    return draw < device.stuck, torch.where(kind < at_zero, 0.0 * sign, sign * bound)


def _mirrored(values: Tensor, symmetric: bool) -> Tensor:
    return torch.triu(values) + torch.triu(values, 1).mT if symmetric else values
