"""Convolutional Hopfield networks: maps that talk to each other in both directions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor, nn

from toreqprop import checks
from toreqprop.energies import (
    Activation,
    AveragePooling,
    Bound,
    ConvolutionCoupling,
    Params,
    Pooling,
    Sigmoid,
    StackEnergy,
    Tanh,
)
from toreqprop.errors import InvalidInputError
from toreqprop.gradients import CenteredEP, GradientEstimator
from toreqprop.models.base import EquilibriumModel, OnFailure, check_batch
from toreqprop.models.constrained import constrained, convolution_balls, weight_and_bias
from toreqprop.models.hopfield_mlp import PASSES, chain_norm
from toreqprop.private_generator import drawing_from
from toreqprop.solution import State
from toreqprop.solvers import Solver

Shape = tuple[int, int, int]
"""Channels, height, width of a map."""

NUDGE_AT_KINKS = 1e-4
"""Of two pixels that nearly tie, a nudge of β makes the other one win where they are some β apart.
Feedback then moves from one to the other, by an amount that does not shrink with β: divided by β it
is an error of the image's gradient that has no order. A weak nudge meets no such tie, and costs no
digits."""


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
            settles fast and leaves the forward pass room; see `StackEnergy`.
        spectral_norm: keep the kernels between layers so weak that the plain map contracts with
            factor ``radius`` (under max pooling above the first layer only its pieces do).
        radius: that contraction factor.
        bound: how the kernels' norms are kept: "tight" or "proven", as in `LoopedMLP`.
        generator: what the initial weights are drawn from; torch's global one by default.
        gradient: see `EquilibriumModel`; under max pooling above the first layer the default nudge
            is `NUDGE_AT_KINKS`, as a stronger one makes other pixels win.
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
        bound: Bound = "tight",
        gradient: GradientEstimator | None = None,
        solver: Solver | None = None,
        tol: float | None = None,
        max_steps: int | None = None,
        on_failure: OnFailure = "warn",
        generator: torch.Generator | None = None,
    ) -> None:
        plan = plan_layers(image, channels, classes, kernel_size, pooling)
        checks.flag("spectral_norm", spectral_norm)
        checks.choice("bound", bound, get_args(Bound))
        radius = checks.number("radius", radius, 0, above=True, typical="0.1 to 0.95")
        feedback = checks.between("feedback", feedback, 0, 1, typical="0.1")
        super().__init__(
            plan.energy(activation, feedback),
            gradient=CenteredEP(NUDGE_AT_KINKS) if gradient is None and plan.kinked else gradient,
            solver=PASSES if solver is None else solver,
            tol=tol,
            max_steps=max_steps,
            on_failure=on_failure,
        )
        self.plan, self.feedback = plan, feedback
        self.spectral_norm, self.radius = spectral_norm, radius
        self.bound: Bound = bound
        with drawing_from(generator):
            first, *upper, self.readout = plan.build()
        self.layers = nn.ModuleList([first])
        for layer, pooled in zip(upper, plan.poolings[1:], strict=True):
            limit = coupling_limit(radius, len(plan.maps) - 1, pooled) / feedback**0.5
            shape, size = tuple(layer.weight.shape), plan.maps[len(self.layers) - 1][1:]
            limits = convolution_balls(bound, limit, shape, size) if spectral_norm else []
            self.layers.append(constrained(layer, *limits))

    image = property(lambda self: self.plan.image)
    channels = property(lambda self: tuple(channels for channels, _, _ in self.plan.maps))
    classes = property(lambda self: self.plan.classes)
    kernel_size = property(lambda self: self.plan.kernel_size)
    pooling = property(lambda self: self.plan.poolings)
    activation = property(lambda self: self.field.activation)

    def field_input(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width), whatever the shape of a sample was."""
        return x.reshape(-1, *self.plan.image)

    def system_parameters(self) -> Params:
        return tuple(t for layer in self.layers for t in weight_and_bias(layer))

    def readout_from(self, state: State) -> Tensor:
        return self.readout(state[-1].flatten(1))

    def layer_shapes(self) -> list[tuple[int, ...]]:
        return list(self.plan.maps)

    def check_input(self, x: Tensor) -> None:
        check_images(x, self.plan.image, self.readout.bias.dtype)

    @classmethod
    def for_rows(
        cls, features: int, hidden: int, outputs: int, *, layers: int | None = None, **options: Any
    ) -> HopfieldConvNet:
        """Rows are square grey images; ``hidden`` counts the channels of the last layer."""
        side = math.isqrt(checks.whole_number("features", features, 1))
        if side * side != features:
            raise InvalidInputError(
                f"A HopfieldConvNet takes rows that are square images, not {features} features."
            )
        count = 2 if layers is None else checks.whole_number("layers", layers, 1)
        hidden = checks.whole_number("hidden", hidden, 1)
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

    @property
    def kinked(self) -> bool:
        """Whether the derivative of a pooling within the relaxation jumps."""
        return any(pooling.curvature is None for pooling in self.poolings[1:])

    def energy(self, activation: Activation | None, feedback: float = 1.0) -> StackEnergy:
        checks.instance("activation", activation, Activation, "use Tanh()", optional=True)
        if activation is None:
            activation = Sigmoid() if self.kinked else Tanh()
        padding = self.kernel_size // 2
        couplings = tuple(ConvolutionCoupling(padding, pooling) for pooling in self.poolings)
        return StackEnergy(couplings, activation, feedback)

    def build(self) -> list[Any]:
        """The convolutions, as holders of their kernels, and the readout."""
        layers = [
            nn.Conv2d(below[0], above[0], self.kernel_size)
            for below, above in itertools.pairwise([self.image, *self.maps])
        ]
        return [*layers, nn.Linear(math.prod(self.maps[-1]), self.classes)]


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
    image = checks.sizes("image", image, 3, "(1, 28, 28) (channels, height, width)")
    if len(image) != 3:
        raise InvalidInputError(
            f"image must be channels, height and width, such as (1, 28, 28); got {image}."
        )
    channels = checks.sizes("channels", channels, 1, "[32, 64]")
    classes = checks.whole_number("classes", classes, 1)
    if checks.whole_number("kernel_size", kernel_size, 1) % 2 == 0:
        raise InvalidInputError(f"kernel_size must be odd, got {kernel_size}. Typical: 3 or 5.")
    if pooling is None or isinstance(pooling, Pooling):
        pooling = [AveragePooling() if pooling is None else pooling] * len(channels)
    one_each = isinstance(pooling, Sequence) and len(pooling) == len(channels)
    if not one_each or not all(isinstance(pooled, Pooling) for pooled in pooling):
        raise InvalidInputError(
            f"pooling must be one such as AveragePooling() for all layers or one for each of the "
            f"{len(channels)}, got {checks.shown(pooling)}."
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
    chain = chain_norm(couplings) * pooling.gain
    curvature = pooling.curvature or 0.0
    if curvature == 0:
        return radius / chain
    return (math.sqrt(chain**2 + 4 * curvature * radius) - chain) / (2 * curvature)
