"""Deep Hopfield networks: layers that talk to each other in both directions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from typing_extensions import Self

from toreqprop import checks
from toreqprop.energies import (
    Activation,
    Bound,
    LinearCoupling,
    NearIdentity,
    Params,
    StackEnergy,
    Tanh,
)
from toreqprop.gradients import CenteredEP, GradientEstimator
from toreqprop.models.base import EquilibriumModel, OnFailure, check_batch
from toreqprop.models.constrained import Constrained, balls, constrained, weights_and_biases
from toreqprop.models.readout import Readout, check_gain, read_out
from toreqprop.private_generator import drawing_from
from toreqprop.solution import State
from toreqprop.solvers import Anderson, GaussSeidel, Solver

Output = Literal["readout", "free"]
Start = Literal["orthogonal", "random", "identity"]


class HopfieldMLP(EquilibriumModel):
    """``s_l = σ(W_l s_{l−1} + b_l + W_{l+1}ᵀ s_{l+1})``: one matrix serves both directions.

    Args:
        sizes: inputs, hidden layers, outputs, such as ``[784, 1024, 1024, 10]``.
        activation: ``Tanh()`` or ``HardSigmoid()``.
        output: "readout" reads the last hidden layer out linearly (for cross-entropy); "free"
            makes the outputs neurons of the network, fed back like any other (the classical form,
            for a squared error).
        spectral_norm: keep the couplings between layers so weak that the plain map contracts with
            factor ``radius``; Gauss-Seidel sweeps settle without it, but then nothing is certified.
        radius: that contraction factor.
        bound: how the couplings' norms are kept: "tight", "proven" or "exact", as in `LoopedMLP`.
        start: "orthogonal" couplings between hidden layers, through which a signal fades little,
            "random" ones, which pass on about half of it, or "identity": then it crosses any number
            of layers.
        feedback: strength of the way back between layers, against one for the way up; below one
            activity need not fade on its way up a deep stack. The certified contraction is then
            in a norm that weights the layers.
        gain: factor of the readout, as in `LoopedMLP`.
        generator: what the initial weights are drawn from; torch's global one by default.
        gradient, solver, tol, max_steps, on_failure: see `EquilibriumModel`.

    Shapes: input (batch, sizes[0]), output (batch, sizes[-1]).
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        activation: Activation | None = None,
        output: Output = "readout",
        spectral_norm: bool = True,
        radius: float = 0.95,
        bound: Bound = "tight",
        start: Start = "orthogonal",
        feedback: float = 0.3,
        gain: float = 1.0,
        gradient: GradientEstimator | None = None,
        solver: Solver | None = None,
        tol: float | None = None,
        max_steps: int | None = None,
        on_failure: OnFailure = "warn",
        generator: torch.Generator | None = None,
    ) -> None:
        sizes = checks.sizes("sizes", sizes, 3, "[784, 1024, 10] (inputs, hidden, outputs)")
        checks.choice("output", output, ("readout", "free"))
        checks.choice("start", start, get_args(Start))
        checks.flag("spectral_norm", spectral_norm)
        checks.choice("bound", bound, get_args(Bound))
        checks.instance("activation", activation, Activation, "use Tanh()", optional=True)
        radius = checks.number("radius", radius, 0, above=True, typical="0.1 to 0.95")
        feedback = checks.between("feedback", feedback, 0, 1)
        gain = check_gain(gain)
        super().__init__(
            StackEnergy(
                (LinearCoupling(),) * (len(sizes) - (output == "readout") - 1),
                Tanh() if activation is None else activation,
                feedback,
            ),
            gradient=gradient,
            solver=PASSES if solver is None else solver,
            tol=tol,
            max_steps=max_steps,
            on_failure=on_failure,
        )
        self.sizes = sizes
        self.output: Output = output
        self.spectral_norm = spectral_norm
        self.radius = radius
        self.bound: Bound = bound
        self.start: Start = start
        self.feedback = feedback
        free = self.sizes if output == "free" else self.sizes[:-1]
        with drawing_from(generator):
            linear = [nn.Linear(below, above) for below, above in itertools.pairwise(free)]
            self.readout = nn.Linear(free[-1], self.sizes[-1]) if output == "readout" else None
            if start == "orthogonal":
                for layer in linear[1 : len(sizes) - 2]:  # between hidden layers
                    nn.init.orthogonal_(layer.weight)
        self.gain = gain
        self._lift = len(linear) ** 0.5 if start == "identity" else 1.0
        edge = 1.0 / (feedback**0.5 * chain_norm(max(1, len(linear) - 1)))
        self.layers = nn.ModuleList(linear[:1])
        for layer in linear[1:]:
            shape = tuple(layer.weight.shape)
            limits = balls(bound, radius * edge, shape) if spectral_norm else []
            if start != "identity":
                self.layers.append(constrained(layer, *limits))
                continue
            rate = 1.0 / len(linear)
            self.layers.append(
                Constrained(
                    torch.zeros_like(layer.weight),
                    NearIdentity(edge, rate),
                    *limits,
                    bias=torch.zeros_like(layer.bias),
                    bias_constraints=(NearIdentity(0.0, rate),),
                )
            )

    @classmethod
    def deep(cls, inputs: int, width: int, layers: int, outputs: int, **options: Any) -> Self:
        """A stack of any depth that still learns: near the edge of stability, certified below it.

        Couplings start at the identity, the way back is a little weaker than the way up, so that
        activity crosses the stack without fading exponentially, and extrapolated passes settle in a
        number that grows more slowly than depth (tracks 11, 23 and 27 of the verification go to
        sixty-four layers). So close to the edge a nudge moves much, and what it moves fades on its
        way down: hence the small tolerance, and a β whose square is below it, so that compiled
        passes serve both phases. Use it in double precision.
        ``options`` replace any of these choices.
        """
        chosen: dict[str, Any] = {
            "radius": 0.99,
            "bound": "exact",
            "start": "identity",
            "feedback": 0.75,
            "gradient": CenteredEP(1e-4),
            "tol": 1e-6,
            "max_steps": 1000,
        }
        layers = checks.whole_number("layers", layers, 1)
        return cls([inputs, *[width] * layers, outputs], **(chosen | options))

    @property
    def activation(self) -> Activation:
        return self.field.activation

    def system_parameters(self) -> Params:
        return tuple(weights_and_biases(self.layers))

    def matrices(self) -> Sequence[nn.Module]:
        layers: Any = self._modules["layers"]  # asking the list itself takes ten times as long
        return tuple(layers._modules.values())

    def readout_from(self, state: State) -> Tensor:
        readout: nn.Linear | None = self.readout  # a module takes its time to give a part of it
        if readout is None:
            return state[-1]
        top = state[-1] if self._lift == 1 else self._lift * state[-1]
        return read_out(readout, top, self.gain)

    def linear_readout(self) -> Readout | None:
        layer = self._modules.get("readout")
        return None if layer is None else Readout(layer, self.gain * self._lift, self.gain)

    def check_input(self, x: Tensor) -> None:
        layers: Any = self._modules["layers"]
        first = layers._modules["0"]  # the list itself takes ten times as long
        check_batch(x, self.sizes[0], first.weight.dtype)

    @classmethod
    def for_rows(
        cls, features: int, hidden: int, outputs: int, *, layers: int | None = None, **options: Any
    ) -> HopfieldMLP:
        layers = 2 if layers is None else checks.whole_number("layers", layers, 1)
        return cls([features, *[hidden] * layers, outputs], **options)

    @classmethod
    def example(cls, **options: Any) -> tuple[HopfieldMLP, Tensor, Tensor]:
        return cls([6, 9, 8, 4], **options), torch.randn(5, 6), torch.randint(0, 4, (5,))

    def extra_repr(self) -> str:
        return (
            f"sizes={list(self.sizes)}, output={self.output!r}, gradient={self.gradient}, "
            f"solver={self.solver}, tol={self.tol:g}, max_steps={self.max_steps}"
        )


PASSES = Anderson(2, GaussSeidel("symmetric"), max_steps=200)
"""Passes down and up, extrapolated from the last two: a coupling near its radius settles in a third
of the passes."""


def chain_norm(couplings: int) -> float:
    """Spectral norm of the symmetric tridiagonal matrix with this many ones on either side."""
    return 2 * math.cos(math.pi / (couplings + 2))
