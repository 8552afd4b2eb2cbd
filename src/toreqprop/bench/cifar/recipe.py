"""The networks of the study and how they are trained: everything that is chosen, in one place."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn

from toreqprop.energies import AveragePooling, ClippedReLU, MaxPooling
from toreqprop.gradients import CenteredEP
from toreqprop.models import HopfieldConvNet
from toreqprop.private_generator import drawing_from

Method = Literal["ep", "backprop"]
METHODS: tuple[Method, ...] = ("ep", "backprop")
IMAGE = (3, 32, 32)
CLASSES = 10
FRONT_MODULES = 4
"""Convolution, max pooling, batch norm, ReLU: a layer of the front."""


@dataclass(frozen=True)
class Recipe:
    """One network and its training, by EP or by backpropagation.

    Convolutions of ``kernel`` pixels, each followed by max pooling and ``clip(u, 0, height)``, and
    a linear readout; they ``start`` with torch's usual weights or with He's. ``windows`` are those
    of the poolings, 1 for none; without, all have 2. AdamW; its rate rises to ``rate`` over the
    first ``warm`` of all steps and falls to zero along a cosine.

    A hybrid has a ``front``: layers of so many channels (convolution, max pooling, batch norm,
    ReLU) that are feed-forward in either network and trained by autograd.

    Of EP alone are ``feedback``, ``beta``, ``tol`` and ``radius``: the kernels between layers are
    kept so weak that the network contracts with that factor wherever no other pixel wins. Without,
    and with a feedback of 0.1, it no longer contracted after a few hundred steps; at a tolerance of
    0.02 the gradient was closer to backprop's than to the exact one, and the certificate refused.
    """

    front: tuple[int, ...] = ()
    channels: tuple[int, ...] = (32, 64, 128)
    windows: tuple[int, ...] = ()
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


def feedforward_front(recipe: Recipe, seed: int) -> list[nn.Module]:
    """The modules in front of the layers that settle; none but in a hybrid."""
    parts: list[nn.Module] = []
    widths = (IMAGE[0], *recipe.front)
    with drawing_from(torch.Generator().manual_seed(seed)):
        for narrow, wide in itertools.pairwise(widths):
            # Batch norm takes a bias away again.
            layer = nn.Conv2d(narrow, wide, recipe.kernel, padding=recipe.kernel // 2, bias=False)
            parts += [layer, nn.MaxPool2d(2), nn.BatchNorm2d(wide), nn.ReLU()]
    return parts


def settling_layers(recipe: Recipe, seed: int) -> HopfieldConvNet:
    """The layers that settle, with their readout: the whole network where it has no front."""
    pixels = IMAGE[1] >> len(recipe.front)
    windows = recipe.windows or (2,) * len(recipe.channels)
    model = HopfieldConvNet(
        ((*IMAGE[:1], *recipe.front)[-1], pixels, pixels),
        recipe.channels,
        CLASSES,
        kernel_size=recipe.kernel,
        pooling=[MaxPooling(size) if size > 1 else AveragePooling(1) for size in windows],
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


def equilibrium_network(recipe: Recipe, seed: int) -> nn.Module:
    """The network by EP: a `HopfieldConvNet`, behind its front where it has one."""
    block = settling_layers(recipe, seed)
    if not recipe.front:
        return block
    front = nn.Sequential(*feedforward_front(recipe, seed))
    return nn.Sequential(front.to(memory_format=torch.channels_last), block)  # type: ignore[call-overload]


def twin(recipe: Recipe, seed: int) -> nn.Sequential:
    """Plain torch modules for the same layers, with the same weights at first, in the order of
    memory in which torch is fastest."""
    like = settling_layers(recipe, seed)
    weights = like.system_parameters()
    parts = feedforward_front(recipe, seed)
    for kernel, bias, pooled in zip(weights[::2], weights[1::2], like.pooling, strict=True):
        wide, narrow = kernel.shape[:2]
        parts.append(nn.Conv2d(narrow, wide, recipe.kernel, padding=recipe.kernel // 2))
        parts[-1].load_state_dict({"weight": kernel, "bias": bias})
        parts += [nn.MaxPool2d(pooled.size), nn.Hardtanh(0.0, recipe.height)]
    whole = nn.Sequential(*parts, nn.Flatten(), like.readout)
    return whole.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def build(method: Method, recipe: Recipe, seed: int) -> nn.Module:
    """The network of a method, with the weights of a seed."""
    return equilibrium_network(recipe, seed) if method == "ep" else twin(recipe, seed)


def parted(model: nn.Module) -> tuple[nn.Module, HopfieldConvNet] | None:
    """What stands in front of the layers that settle, and these; None where none do."""
    if isinstance(model, HopfieldConvNet):
        return nn.Identity(), model
    if isinstance(model, nn.Sequential) and isinstance(last := model[-1], HopfieldConvNet):
        return model[:-1], last
    return None
