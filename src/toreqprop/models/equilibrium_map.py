"""A map whose cells talk to their neighbours until they agree: any image size, one kernel."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from toreqprop import checks
from toreqprop.energies import Activation, MapEnergy, Params, Sigmoid, SymmetricKernel
from toreqprop.errors import InvalidInputError
from toreqprop.gradients import CenteredEP, GradientEstimator
from toreqprop.models.base import EquilibriumModel, OnFailure, check_samples, check_tensor
from toreqprop.models.constrained import Constrained, weight_and_bias
from toreqprop.private_generator import drawing_from
from toreqprop.solution import State
from toreqprop.solvers import FixedPoint, Solver


class EquilibriumMap(EquilibriumModel):
    """``s = σ(K ⋆ s + D ⋆ x + b)``, read out cell by cell as ``W s + c``.

    Every cell sees its neighbours alone; what it needs to know of the rest of the image reaches it
    while the map settles, however far away it is. So one trained network serves images of any size.

    Args:
        inputs: channels of an image.
        channels: of the map.
        outputs: numbers for each cell, such as the logits of its classes.
        kernel_size: side of the kernels, odd.
        coupling: the initial strength with which a cell holds itself and its neighbours in the
            same channel.
        start: the state every cell begins at: 0 where activity has to spread, 1 where it has to
            be withdrawn.
        cooperative: keep the kernel from being negative: cells only support each other, and a
            relaxation from 0 rises to the lowest equilibrium (from 1 falls to the highest) with any
            weights, contraction or not.
        activation: ``Sigmoid()``, ``Tanh()`` or another.
        generator: what the initial weights are drawn from; torch's global one by default.
        gradient, solver, tol, max_steps, on_failure: see `EquilibriumModel`. By default the
            nudge is weak and the tolerance tight: maps learn next to bifurcations, and a front that
            moves is a few cells of thousands. ``CenteredEP(beta=1e-3, max_gain=2)`` also limits
            what single samples count, at the price of a gradient that is not the loss's.

    Shapes: input (batch, inputs, height, width), output (batch, height, width, outputs).
    """

    def __init__(
        self,
        inputs: int,
        channels: int = 4,
        outputs: int = 2,
        *,
        kernel_size: int = 3,
        coupling: float = 0.15,
        start: float = 0.0,
        cooperative: bool = True,
        activation: Activation | None = None,
        gradient: GradientEstimator | None = None,
        solver: Solver | None = None,
        tol: float | None = None,
        max_steps: int | None = None,
        on_failure: OnFailure = "warn",
        generator: torch.Generator | None = None,
    ) -> None:
        inputs = checks.whole_number("inputs", inputs, 1)
        channels = checks.whole_number("channels", channels, 1)
        outputs = checks.whole_number("outputs", outputs, 1)
        if checks.whole_number("kernel_size", kernel_size, 1) % 2 == 0:
            raise InvalidInputError(f"kernel_size must be odd, got {kernel_size}. Typical: 3.")
        coupling = checks.number("coupling", coupling, typical="0.1 to 0.3")
        field = MapEnergy(Sigmoid() if activation is None else activation, start)
        super().__init__(
            field,
            gradient=CenteredEP(beta=1e-3) if gradient is None else gradient,
            solver=FixedPoint(tol=1e-5, max_steps=1000) if solver is None else solver,
            tol=tol,
            max_steps=max_steps,
            on_failure=on_failure,
        )
        self.inputs, self.channels, self.outputs = inputs, channels, outputs
        self.kernel_size, self.coupling = kernel_size, coupling
        self.cooperative = cooperative
        with drawing_from(generator):
            self.drive = nn.Conv2d(inputs, channels, kernel_size)
            kernel = (
                0.1
                * torch.randn(channels, channels, kernel_size, kernel_size)
                / (channels**0.5 * kernel_size)
            )
            kernel += coupling * torch.eye(channels)[:, :, None, None]
            self.recurrent = Constrained(kernel, SymmetricKernel(cooperative))
            self.readout = nn.Linear(channels, outputs)

    start = property(lambda self: self.field.start)
    activation = property(lambda self: self.field.activation)

    def system_parameters(self) -> Params:
        return (*weight_and_bias(self.drive), self.recurrent.weight)

    def readout_from(self, state: State) -> Tensor:
        return self.readout(state[0].movedim(1, -1))

    def check_input(self, x: Tensor) -> None:
        check_tensor(x)
        if x.dim() != 4 or x.shape[1] != self.inputs or 0 in x.shape[2:]:
            raise InvalidInputError(
                f"The input must have shape (batch, {self.inputs}, height, width), got "
                f"{tuple(x.shape)}: reshape it or build the model with that many inputs."
            )
        check_samples(x, self.readout.weight.dtype)

    variants: ClassVar[tuple[dict[str, Any], ...]] = ({}, {"start": 1.0})

    @classmethod
    def example(cls, **options: Any) -> tuple[EquilibriumMap, Tensor, Tensor]:
        x = torch.randn(4, 2, 5, 6)
        return cls(2, 5, 3, **options), x, (x > 0).sum(1)

    def extra_repr(self) -> str:
        return (
            f"channels={self.channels}, start={self.start:g}, gradient={self.gradient}, "
            f"solver={self.solver}, tol={self.tol:g}, max_steps={self.max_steps}"
        )
