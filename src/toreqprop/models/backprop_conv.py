"""The baseline: the layers of `HopfieldConvNet` without feedback, trained by backpropagation."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from toreqprop.energies import (
    Activation,
    Pooling,
)
from toreqprop.models.hopfield_conv import check_images, plan_layers
from toreqprop.private_generator import drawing_from


class BackpropConvNet(nn.Module):
    """``s_l = σ(P(K_l ⋆ s_{l−1}) + b_l)`` and a linear readout: an ordinary convolutional network.

    The same layers, code and number of weights as a `HopfieldConvNet` with these arguments, whose
    relaxation starts from this forward pass. Shapes as there.
    """

    def __init__(
        self,
        image: Sequence[int] = (1, 28, 28),
        channels: Sequence[int] = (32, 64),
        classes: int = 10,
        *,
        kernel_size: int = 5,
        pooling: Pooling | Sequence[Pooling] | None = None,
        activation: Activation | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.plan = plan_layers(image, channels, classes, kernel_size, pooling)
        self.feed_forward = self.plan.energy(activation)
        with drawing_from(generator):
            *layers, self.readout = self.plan.build()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        check_images(x, self.plan.image, self.readout.bias.dtype)
        params = tuple(p for layer in self.layers for p in (layer.weight, layer.bias))
        images = x.reshape(-1, *self.plan.image)
        drive = self.feed_forward.prepare(images, params)  # type: ignore[arg-type]
        last = self.feed_forward.initial_state(drive, params)[-1]  # type: ignore[arg-type]
        return self.readout(last.flatten(1))
