"""Sequential networks for images (1, 8, 8): what `convert` is measured and tested with."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from toreqprop.models.residual import Residual

SHAPE = (1, 8, 8)
"""Of a sample."""


def lenet(width: int, classes: int) -> nn.Sequential:
    """Convolutions with tanh and average pooling, then dense layers (LeCun et al. 1998)."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2),
        nn.Conv2d(width, 2 * width, 3), nn.Tanh(),
        nn.Flatten(), nn.Linear(8 * width, 4 * width), nn.Tanh(),
        nn.Linear(4 * width, classes),
    )  # fmt: skip


def vgg(width: int, classes: int) -> nn.Sequential:
    """Small kernels, clipped ReLU and max pooling (Simonyan and Zisserman 2015)."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.ReLU6(),
        nn.Conv2d(width, width, 3, padding=1), nn.ReLU6(), nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU6(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(8 * width, 4 * width), nn.ReLU6(),
        nn.Linear(4 * width, classes),
    )  # fmt: skip


def mixer(width: int, classes: int) -> nn.Sequential:
    """Patches as tokens, mixed along tokens and channels in turn (Tolstikhin et al. 2021).

    Activity is (batch, channels, tokens): a linear module mixes tokens, a convolution of width one
    mixes channels.
    """

    def block() -> list[nn.Module]:
        tokens = nn.Sequential(nn.Linear(16, 2 * width), nn.Tanh(), nn.Linear(2 * width, 16))
        channels = nn.Sequential(
            nn.Conv1d(width, 2 * width, 1), nn.Tanh(), nn.Conv1d(2 * width, width, 1)
        )
        return [Residual(tokens), Residual(channels)]

    return nn.Sequential(
        nn.Conv2d(1, width, 2, stride=2), nn.Flatten(2),
        *block(), *block(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width, classes),
    )  # fmt: skip


def residual(width: int, classes: int) -> nn.Sequential:
    """Thirteen layers of convolutions with skip connections (He et al. 2016)."""

    def block(below: int, above: int, stride: int = 1) -> list[nn.Module]:
        body = nn.Sequential(
            nn.Conv2d(below, above, 3, stride, padding=1), nn.ReLU6(),
            nn.Conv2d(above, above, 3, padding=1),
        )  # fmt: skip
        shortcut = nn.Conv2d(below, above, 1, stride) if stride > 1 else None
        return [Residual(body, shortcut), nn.ReLU6()]

    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.ReLU6(),
        *block(width, 2 * width, 2), *block(2 * width, 2 * width), *block(2 * width, 2 * width),
        *block(2 * width, 2 * width, 2), *block(2 * width, 2 * width), *block(2 * width, 2 * width),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, classes),
    )  # fmt: skip


def depthwise(width: int, classes: int) -> nn.Sequential:
    """Kernels that see one channel each, then channels mixed (Howard et al. 2017)."""

    def separable(below: int, above: int, stride: int) -> list[nn.Module]:
        return [
            nn.Conv2d(below, below, 3, stride, padding=1, groups=below), nn.ReLU6(),
            nn.Conv2d(below, above, 1), nn.ReLU6(),
        ]  # fmt: skip

    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1, bias=False), nn.ReLU6(),
        *separable(width, 2 * width, 2), *separable(2 * width, 2 * width, 2),
        nn.Flatten(), nn.Linear(8 * width, classes),
    )  # fmt: skip


def sequence(width: int, classes: int) -> nn.Sequential:
    """Convolutions along a line of numbers: the image, row after row."""
    return nn.Sequential(
        nn.Flatten(2),
        nn.Conv1d(1, width, 5, padding=2), nn.ReLU6(), nn.MaxPool1d(2),
        nn.Conv1d(width, 2 * width, 5, 2, padding=2), nn.ReLU6(), nn.MaxPool1d(2),
        nn.Conv1d(2 * width, 2 * width, 3, padding=1), nn.Tanh(), nn.AvgPool1d(2),
        nn.Flatten(), nn.Linear(8 * width, 4 * width), nn.Tanh(),
        nn.Linear(4 * width, classes),
    )  # fmt: skip


NETWORKS: dict[str, Callable[[int, int], nn.Sequential]] = {
    "lenet": lenet,
    "vgg": vgg,
    "mixer": mixer,
    "residual": residual,
    "depthwise": depthwise,
    "sequence": sequence,
}
"""Every network by its name, a function of its width and of the number of classes."""
