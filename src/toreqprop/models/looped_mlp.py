"""One hidden layer that feeds back into itself until it settles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, get_args

import torch
from torch import Tensor, nn

from toreqprop import checks
from toreqprop.energies import (
    Bound,
    DenseEnergy,
    DenseField,
    Params,
    Symmetric,
    VectorField,
)
from toreqprop.errors import InvalidInputError
from toreqprop.gradients import GradientEstimator
from toreqprop.models.base import EquilibriumModel, KernelName, OnFailure, check_batch
from toreqprop.models.constrained import Constrained, balls, weight_and_bias
from toreqprop.models.readout import Readout, check_gain, read_out
from toreqprop.private_generator import drawing_from
from toreqprop.solution import State
from toreqprop.solvers import Anderson, Solver


class LoopedMLP(EquilibriumModel):
    """``h = tanh(W_in x + b + W_rec h)``, read out as ``gain (W_out h + c)``.

    Args:
        in_features, hidden_features, out_features: the sizes.
        spectral_norm: keep ``‖W_rec‖₂ ≤ radius``.
        radius: below one the equilibrium exists, is unique, and is found. A small one means few
            steps per relaxation, one near 1 more recurrence.
        bound: how that is done: "tight" keeps the norm itself within 3 % of the radius, by an
            estimate that is proven now and then and by `certify` (see `TightBall`); "proven"
            divides by a cheap upper bound of the norm, several times too large for dense weights,
            so that little recurs; "exact" computes it at every step.
        symmetric: keep ``W_rec`` symmetric, so that an energy exists.
        gain: factor of the readout. States are bounded by one, so that confident outputs need
            large weights, which weight decay holds back; a gain of 10 or so frees them.
        generator: what the initial weights are drawn from; torch's global one by default.
        solver: by default ``FixedPoint()``; where there is an energy that contracts slowly, at a
            radius between a half and one, ``Anderson(memory=2)``, which compiled code settles by
            conjugate gradients.
        gradient, tol, max_steps, on_failure, kernel: see `EquilibriumModel`.

    Shapes: input (batch, in_features), output (batch, out_features).
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int,
        *,
        spectral_norm: bool = True,
        radius: float = 0.3,
        bound: Bound = "tight",
        symmetric: bool = True,
        gain: float = 1.0,
        gradient: GradientEstimator | None = None,
        solver: Solver | None = None,
        tol: float | None = None,
        max_steps: int | None = None,
        on_failure: OnFailure = "warn",
        kernel: KernelName | None = "auto",
        generator: torch.Generator | None = None,
    ) -> None:
        in_features = checks.whole_number("in_features", in_features, 1)
        hidden_features = checks.whole_number("hidden_features", hidden_features, 1)
        out_features = checks.whole_number("out_features", out_features, 1)
        checks.flag("spectral_norm", spectral_norm)
        checks.choice("bound", bound, get_args(Bound))
        checks.flag("symmetric", symmetric)
        radius = checks.number("radius", radius, 0, above=True, typical="0.1 to 0.95")
        gain = check_gain(gain)
        if solver is None and symmetric and spectral_norm and _FEW < radius < 1:
            # The reference knows plain iteration alone.
            solver = None if kernel == "numpy" else Anderson(memory=2)
        field: VectorField = DenseEnergy() if symmetric else DenseField()
        super().__init__(
            field,
            gradient=gradient,
            solver=solver,
            tol=tol,
            max_steps=max_steps,
            on_failure=on_failure,
            kernel=kernel,
        )
        self.in_features = in_features
        self.hidden_features = hidden_features
        self.out_features = out_features
        self.spectral_norm = spectral_norm
        self.radius = radius
        self.bound: Bound = bound
        self.symmetric = symmetric
        self.gain = gain
        with drawing_from(generator):
            self.input = nn.Linear(in_features, hidden_features)
            initial = torch.randn(hidden_features, hidden_features)
            initial *= _INITIAL_GAIN / hidden_features**0.5
            self.recurrent = Constrained(initial, *self._constraints())
            self.readout = nn.Linear(hidden_features, out_features)

    def _constraints(self) -> list[nn.Module]:
        if self.spectral_norm:
            shape = (self.hidden_features, self.hidden_features)
            compiled = self.kernel in ("auto", "numba")
            return balls(
                self.bound, self.radius, shape, symmetric=self.symmetric, compiled=compiled
            )
        return [Symmetric()] if self.symmetric else []

    def system_parameters(self) -> Params:
        return (*weight_and_bias(self.input), self.recurrent.weight)

    def matrices(self) -> Sequence[nn.Module]:
        parts: Any = self._modules
        return parts["input"], parts["recurrent"]

    def readout_from(self, state: State) -> Tensor:
        return read_out(self.readout, state[0], self.gain)

    def linear_readout(self) -> Readout:
        parts: Any = self._modules
        return Readout(parts["readout"], self.gain, self.gain)

    def check_input(self, x: Tensor) -> None:
        check_batch(x, self.in_features, self.input.weight.dtype)

    def certified_contraction(self) -> float | None:
        proven = self.spectral_norm and self.bound != "tight" and self.radius < 1
        return self.radius if proven else None

    def residual_factor(self) -> float | None:
        return self.radius if self.spectral_norm and self.radius < 1 else None

    variants: ClassVar[tuple[dict[str, Any], ...]] = ({}, {"gain": 8.0}, {"radius": 0.9})

    @classmethod
    def for_rows(
        cls, features: int, hidden: int, outputs: int, *, layers: int | None = None, **options: Any
    ) -> LoopedMLP:
        if layers is not None and checks.whole_number("layers", layers, 1) != 1:
            raise InvalidInputError(f"A LoopedMLP has one hidden layer, not {layers}.")
        return cls(features, hidden, outputs, **options)

    @classmethod
    def example(cls, **options: Any) -> tuple[LoopedMLP, Tensor, Tensor]:
        return cls(6, 9, 4, **options), torch.randn(5, 6), torch.randint(0, 4, (5,))

    def extra_repr(self) -> str:
        return (
            f"spectral_norm={self.spectral_norm}, radius={self.radius}, "
            f"symmetric={self.symmetric}, gain={self.gain:g}, gradient={self.gradient}, "
            f"solver={self.solver}, tol={self.tol:g}, max_steps={self.max_steps}"
        )


_FEW = 0.5
"""The radius up to which plain iteration needs so few products that a step of conjugate gradients,
which does more between them, saves nothing."""

_INITIAL_GAIN = 0.1
"""Spectral radius of the initial recurrent matrix, roughly twice this: near-feed-forward, so that
training decides how much recurrence the task needs."""
