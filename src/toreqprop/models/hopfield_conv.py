"""Convolutional Hopfield networks: maps that talk to each other in both directions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from toreqprop.energies import (
    Activation,
    AveragePooling,
    ConvolutionalEnergy,
    ConvolutionBall,
    Linear,
    Params,
    PooledConvolution,
    Pooling,
    Sigmoid,
    Tanh,
    convolution_norm,
)
from toreqprop.energies.convolutional import Shape
from toreqprop.errors import InvalidInputError, UnsupportedModelError
from toreqprop.gradients import CenteredEP, GradientEstimator
from toreqprop.models.base import EquilibriumModel, OnFailure, check_batch
from toreqprop.solution import State
from toreqprop.solvers import GaussSeidel, Solver


class HopfieldConvNet(EquilibriumModel):
    """``s_l = σ(P(K_l ⋆ s_{l−1}) + b_l + K_{l+1}ᵀ ⋆ P'ᵀ s_{l+1})``: one kernel, both directions.

    Args:
        image: channels, height and width of an input.
        channels: of each convolutional layer, such as ``[32, 64]``.
        classes: outputs of the linear readout of the last layer (for cross-entropy).
        kernel_size: odd; maps keep their size until they are pooled.
        pooling: `AveragePooling`, `MaxPooling` or `SoftPooling` after each convolution: one for
            all, or one for each layer. The first acts on the image alone, outside the relaxation.
        activation: ``Tanh()``, ``Sigmoid()`` or ``HardSigmoid()``. Under max pooling above the
            first layer the default is ``Sigmoid()``: states that are never negative make sweeps
            settle, with tanh they may go round in circles.
        feedback: strength of the way down relative to the way up, in (0, 1]: weak feedback
            settles fast and leaves the forward pass room; see `ConvolutionalEnergy`.
        spectral_norm: keep the kernels between layers so weak that the plain map contracts with
            factor ``radius`` (under max pooling above the first layer only its pieces do).
        radius: that contraction factor.
        gradient: by default `CenteredEP` with β a tenth of the range of the last layer's states.
        solver, tol, max_steps, on_failure: see `EquilibriumModel`.

    Shapes: input (batch, *image) or flat (batch, channels·height·width), output (batch, classes).
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
        feedback: float = 0.1,
        spectral_norm: bool = True,
        radius: float = 0.95,
        gradient: GradientEstimator | None = None,
        solver: Solver | None = None,
        tol: float = 1e-3,
        max_steps: int = 200,
        on_failure: OnFailure = "warn",
    ) -> None:
        plan = plan_layers(image, channels, classes, kernel_size, pooling)
        if not 0 < feedback <= 1:
            raise InvalidInputError(f"feedback must be in (0, 1], got {feedback}. Typical: 0.1.")
        if gradient is None:  # β in units of the last layer's range
            gradient = CenteredEP(0.1 * feedback ** ((len(plan.maps) - 1) / 2))
        super().__init__(
            plan.energy(activation, feedback),
            gradient=gradient,
            solver=GaussSeidel() if solver is None else solver,
            tol=tol,
            max_steps=max_steps,
            on_failure=on_failure,
        )
        self.plan, self.feedback = plan, feedback
        self.spectral_norm, self.radius = spectral_norm, radius
        self.layers, self.readout = plan.build()
        if spectral_norm:
            for layer, pooled in zip(list(self.layers)[1:], plan.poolings[1:], strict=True):
                limit = coupling_limit(radius, len(plan.maps) - 1, pooled) / feedback**0.5
                parametrize.register_parametrization(layer, "weight", ConvolutionBall(limit))

    def system_parameters(self) -> Params:
        """Kernels and biases in units of the layers' ranges: kernels between layers times √f."""
        first, *upper = self.layers
        found = [first.weight, first.bias]
        for number, layer in enumerate(upper, start=1):
            scales = self.feedback**0.5, self.feedback ** (number / 2)
            found += [scales[0] * layer.weight, scales[1] * layer.bias]  # type: ignore[list-item, operator]
        return tuple(found)  # type: ignore[arg-type]

    def readout_from(self, state: State) -> Tensor:
        return self.readout(state[-1].flatten(1) / self.feedback ** ((len(state) - 1) / 2))

    def check_input(self, x: Tensor) -> None:
        check_images(x, self.plan.image, self.readout.bias.dtype)

    @torch.no_grad()
    def lipschitz(self) -> float:
        """An upper bound on the plain map's Lipschitz constant.

        The Jacobian is block tridiagonal: pooled convolutions off its diagonal and, on it, what
        the pooling's own curvature adds. Its norm is at most that of the small matrix of norms.

        Raises:
            UnsupportedModelError: the pooling's derivative jumps, or the states are unbounded.
        """
        poolings = self.plan.poolings[1:]
        if any(pooling.curvature is None for pooling in poolings):
            raise UnsupportedModelError(
                "Under max pooling the fixed-point map jumps where another pixel wins, so it has "
                "no Lipschitz constant: use AveragePooling() or SoftPooling() above the first."
            )
        curved = any(pooling.curvature for pooling in poolings)
        if curved and isinstance(self.field.activation, Linear):
            raise UnsupportedModelError(
                "With unbounded states the curvature of soft pooling is unbounded: use "
                "activation=HardSigmoid() or pooling=AveragePooling()."
            )
        norms = [
            convolution_norm(kernel, *below[1:])
            for kernel, below in zip(self.system_parameters()[2::2], self.plan.maps, strict=False)
        ]
        return self.field.activation.slope * _block_norm(norms, poolings)

    def config(self) -> dict[str, Any]:
        return {
            "image": self.plan.image,
            "channels": tuple(channels for channels, _, _ in self.plan.maps),
            "classes": self.plan.classes,
            "kernel_size": self.plan.kernel_size,
            "pooling": self.plan.poolings,
            "activation": self.field.activation,
            "feedback": self.feedback,
            "spectral_norm": self.spectral_norm,
            "radius": self.radius,
            "gradient": self.gradient,
            "solver": self.solver,
            "tol": self.tol,
            "max_steps": self.max_steps,
            "on_failure": self.on_failure,
        }

    @classmethod
    def for_rows(
        cls, features: int, hidden: int, outputs: int, *, layers: int | None = None, **options: Any
    ) -> HopfieldConvNet:
        """Rows are square grey images; ``hidden`` counts the channels of the last layer."""
        side = math.isqrt(features)
        if side * side != features:
            raise InvalidInputError(
                f"A HopfieldConvNet takes rows that are square images, not {features} features."
            )
        count = 2 if layers is None else layers
        channels = [max(1, hidden >> (count - 1 - layer)) for layer in range(count)]
        return cls((1, side, side), channels, outputs, **options)

    @classmethod
    def example(cls, **options: Any) -> tuple[HopfieldConvNet, Tensor, Tensor]:
        model = cls((2, 9, 8), (5, 6), 4, kernel_size=3, **options)
        return model, torch.randn(6, 2, 9, 8), torch.randint(0, 4, (6,))

    def extra_repr(self) -> str:
        return (
            f"image={self.plan.image}, pooling={list(self.plan.poolings)}, "
            f"feedback={self.feedback:g}, "
            f"gradient={self.gradient}, solver={self.solver}, tol={self.tol:g}, "
            f"max_steps={self.max_steps}"
        )


@dataclass(frozen=True)
class ConvolutionalPlan:
    """The layers of a convolutional network: the shape of the image and of every pooled map."""

    image: Shape
    maps: tuple[Shape, ...]
    classes: int
    kernel_size: int
    poolings: tuple[Pooling, ...]

    def energy(self, activation: Activation | None, feedback: float = 1.0) -> ConvolutionalEnergy:
        if activation is None:
            jumps = any(pooling.curvature is None for pooling in self.poolings[1:])
            activation = Sigmoid() if jumps else Tanh()
        couplings = tuple(PooledConvolution(p, self.kernel_size // 2) for p in self.poolings)
        return ConvolutionalEnergy(self.image, couplings, activation, feedback)

    def build(self) -> tuple[nn.ModuleList, nn.Linear]:
        """The convolutions, as holders of their kernels, and the readout."""
        layers = nn.ModuleList(
            nn.Conv2d(below[0], above[0], self.kernel_size)
            for below, above in itertools.pairwise([self.image, *self.maps])
        )
        return layers, nn.Linear(math.prod(self.maps[-1]), self.classes)


def plan_layers(
    image: Sequence[int],
    channels: Sequence[int],
    classes: int,
    kernel_size: int,
    pooling: Pooling | Sequence[Pooling] | None,
) -> ConvolutionalPlan:
    """Check the sizes of a network and work out its maps.

    Raises:
        InvalidInputError: sizes that build no network, with what to change.
    """
    if len(image) != 3 or min(image) < 1:
        raise InvalidInputError(
            f"image must be channels, height and width, such as (1, 28, 28); got {tuple(image)}."
        )
    if len(channels) < 1 or min(channels) < 1 or classes < 1:
        raise InvalidInputError(
            f"channels needs at least one layer, and all sizes must be >= 1; got "
            f"channels={list(channels)}, classes={classes}."
        )
    if kernel_size < 1 or kernel_size % 2 == 0:
        raise InvalidInputError(f"kernel_size must be odd, got {kernel_size}. Typical: 3 or 5.")
    if pooling is None or isinstance(pooling, Pooling):
        pooling = [AveragePooling() if pooling is None else pooling] * len(channels)
    if len(pooling) != len(channels):
        raise InvalidInputError(
            f"pooling must be one for all layers or one for each of the {len(channels)}, "
            f"got {len(pooling)}."
        )
    maps = [(image[0], image[1], image[2])]
    for width, pooled in zip(channels, pooling, strict=True):
        maps.append((width, maps[-1][1] // pooled.size, maps[-1][2] // pooled.size))
    if min(maps[-1]) < 1:
        raise InvalidInputError(
            f"{len(channels)} poolings leave nothing of {image[1]} x {image[2]} pixels: use fewer "
            "layers or smaller poolings."
        )
    return ConvolutionalPlan(maps[0], tuple(maps[1:]), classes, kernel_size, tuple(pooling))


def check_images(x: Tensor, image: Shape, dtype: torch.dtype) -> None:
    """Refuse anything but finite images of this shape, flat or not."""
    flat = x.flatten(1) if isinstance(x, Tensor) and tuple(x.shape[1:]) == image else x
    check_batch(flat, math.prod(image), dtype)


def coupling_limit(radius: float, couplings: int, pooling: Pooling) -> float:
    """The norm of a convolution up to which a chain of them contracts with factor ``radius``.

    Solves ``c·k² + 2·cos(π/(n+2))·g·k = radius`` for k, with the pooling's curvature c and gain g.
    """
    chain = 2 * math.cos(math.pi / (couplings + 2)) * pooling.gain
    curvature = pooling.curvature or 0.0
    if curvature == 0:
        return radius / chain
    return (math.sqrt(chain**2 + 4 * curvature * radius) - chain) / (2 * curvature)


def _block_norm(norms: list[float], poolings: Sequence[Pooling]) -> float:
    """Norm of the matrix with ``gain·k_l`` beside and ``curvature·k_l²`` on its diagonal."""
    if not norms:
        return 0.0
    pairs = list(zip(norms, poolings, strict=True))
    beside = torch.tensor([p.gain * k for k, p in pairs], dtype=torch.float64)
    own = torch.tensor([(p.curvature or 0.0) * k * k for k, p in pairs] + [0], dtype=torch.float64)
    matrix = torch.diag(own) + torch.diag(beside, 1) + torch.diag(beside, -1)
    return float(torch.linalg.eigvalsh(matrix)[-1])
