"""The networks of the study and how they are trained: everything that is chosen, in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn

from toreqprop.energies import ClippedReLU, MaxPooling
from toreqprop.gradients import CenteredEP
from toreqprop.models import HopfieldConvNet

Method = Literal["ep", "backprop"]
METHODS: tuple[Method, ...] = ("ep", "backprop")
IMAGE = (3, 32, 32)
CLASSES = 10


@dataclass(frozen=True)
class Recipe:
    """One network and its training, by EP or by backpropagation.

    Convolutions of ``kernel`` pixels, each followed by max pooling and ``clip(u, 0, height)``, and
    a linear readout; they ``start`` with torch's usual weights or with He's. AdamW; its rate rises
    to ``rate`` over the first ``warm`` of all steps and falls to zero along a cosine.

    Of EP alone are ``feedback``, ``beta``, ``tol`` and ``radius``: the kernels between layers are
    kept so weak that the network contracts with that factor wherever no other pixel wins. Without,
    and with a feedback of 0.1, it no longer contracted after a few hundred steps; at a tolerance of
    0.02 the gradient was closer to backprop's than to the exact one, and the certificate refused.
    """

    channels: tuple[int, ...] = (32, 64, 128)
    kernel: int = 3
    height: float = 6.0
    start: Literal["usual", "he"] = "usual"
    feedback: float = 0.02
    radius: float = 0.7
    beta: float = 1e-4
    tol: float = 7e-3
    epochs: int = 5
    batch: int = 64
    rate: float = 4e-3
    decay: float = 0.05
    warm: float = 0.15

    def rate_at(self, share: float) -> float:
        """The rate when this share of all steps is done."""
        if share < self.warm:
            return self.rate * share / self.warm
        return 0.5 * self.rate * (1 + math.cos(math.pi * (share - self.warm) / (1 - self.warm)))

    def but(self, **changes: Any) -> Recipe:
        """Another one with these settings."""
        return replace(self, **changes)


def equilibrium_network(recipe: Recipe, seed: int) -> HopfieldConvNet:
    """The network that settles."""
    model = HopfieldConvNet(
        IMAGE,
        recipe.channels,
        CLASSES,
        kernel_size=recipe.kernel,
        pooling=MaxPooling(),
        activation=ClippedReLU(recipe.height),
        feedback=recipe.feedback,
        radius=recipe.radius,
        gradient=CenteredEP(recipe.beta),
        tol=recipe.tol,
        on_failure="ignore",
        generator=torch.Generator().manual_seed(seed),
    )
    if recipe.start == "he":
        with torch.no_grad():
            for kernel in (p for p in model.layers.parameters() if p.dim() == 4):
                kernel.mul_(6**0.5)  # of the usual weights the variance is a sixth of He's
    return model


def twin(recipe: Recipe, seed: int) -> nn.Sequential:
    """Plain torch modules for the same layers, with the same weights at first, in the order of
    memory in which torch is fastest."""
    like = equilibrium_network(recipe, seed)
    weights = like.system_parameters()
    parts: list[nn.Module] = []
    for kernel, bias in zip(weights[::2], weights[1::2], strict=True):
        wide, narrow = kernel.shape[:2]
        parts.append(nn.Conv2d(narrow, wide, recipe.kernel, padding=recipe.kernel // 2))
        parts[-1].load_state_dict({"weight": kernel, "bias": bias})
        parts += [nn.MaxPool2d(2), nn.Hardtanh(0.0, recipe.height)]
    whole = nn.Sequential(*parts, nn.Flatten(), like.readout)
    return whole.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def build(method: Method, recipe: Recipe, seed: int) -> nn.Module:
    """The network of a method, with the weights of a seed."""
    return equilibrium_network(recipe, seed) if method == "ep" else twin(recipe, seed)
