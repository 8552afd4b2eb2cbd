"""The rival: one pass upwards through the same chip, trained by backpropagation."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from toreqprop.energies import StackEnergy
from toreqprop.energies.devices import Device, DeviceField
from toreqprop.errors import UnsupportedModelError
from toreqprop.models import EquilibriumModel, OnChip
from toreqprop.private_generator import noise
from toreqprop.solvers.device_phases import reading


class FeedForward(nn.Module):
    """A stack's layers in turn, without feedback, with the faults of a chip in the pass.

    Weights, gains, offsets and readings as in `OnChip`; gradients pass quantisers straight through
    and see the noise of the pass. Outside training the mean of `Device.average` passes counts.

    Args:
        device: the chip.
        network: the stack; its parameters are shared.
        resampled: whether every pass in training is on another chip of the same production:
            training that knows the faults' distribution, not the chip (hardware-aware).
    """

    def __init__(self, device: Device, network: EquilibriumModel, resampled: bool = False) -> None:
        super().__init__()
        if not isinstance(network.field, StackEnergy):
            raise UnsupportedModelError("Only a stack has a pass upwards: use HopfieldMLP.")
        self.network, self.device, self.resampled = network, device, resampled
        self._chip = [OnChip(device, network)]

    def forward(self, x: Tensor) -> Tensor:
        chip = self._chip[0]
        if self.training and self.resampled:
            seed = int(torch.randint(0, 2**31, (), generator=noise()))
            chip = OnChip(replace(self.device, seed=seed), self.network)
        passes = 1 if self.training or not self.device.read_noise else self.device.average
        total = _upwards(chip, x)
        for _ in range(passes - 1):
            total = total + _upwards(chip, x)
        return total / passes


def _upwards(chip: OnChip, x: Tensor) -> Tensor:
    stack, field = chip.network.field, chip.field
    assert isinstance(stack, StackEnergy)
    params = chip.system_parameters()
    if isinstance(field, DeviceField) and field.mismatched:
        params = params[: len(params) // 2]
    drive = stack.prepare(chip.field_input(x), params)
    read = reading(chip.device)
    state: list[Tensor] = []
    for layer in range(len(stack.couplings)):
        # Nothing comes from above: its place is never looked at on the way up.
        u = stack.rising(layer, (*state, x), drive)
        s = field.activate_layer(layer, u)
        state.append(s + (read((s.detach(),))[0] - s).detach())
    return chip.readout_from(tuple(state))
