"""Fill in what is hidden: features and the layers above them settle around what is seen."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, ClassVar, get_args

import torch
from torch import Tensor, nn

from toreqprop import checks
from toreqprop.energies import Activation, Bound, CompletionEnergy, Params, Tanh
from toreqprop.errors import InvalidInputError
from toreqprop.gradients import CenteredEP, GradientEstimator
from toreqprop.models.base import EquilibriumModel, OnFailure, check_batch
from toreqprop.models.constrained import balls, constrained, weights_and_biases
from toreqprop.models.hopfield_mlp import chain_norm
from toreqprop.private_generator import drawing_from
from toreqprop.solution import State
from toreqprop.solvers import Anderson, GaussSeidel, Solver
from toreqprop.tracing import is_traced


class CompletionNetwork(EquilibriumModel):
    """``v = W₁ᵀh₁ + a`` where hidden, ``v = x`` where seen, and ``h₁ = σ(W₁v + D(m⊙x, m) + b₁)``;
    with more layers ``h_l = σ(W_l h_{l−1} + b_l + W_{l+1}ᵀh_{l+1})``.

    What is seen is held fast, and the rest settles around it, with any mask: one matrix says both
    what features mean and what a meaning looks like. D, at first zero, lets what is seen say more
    than a guess does; it is an input's, so that no norm bounds it. A class is no different from a
    pixel: give it features of its own that are never seen (or always, to see what it looks like).

    Near a norm of one completion is at its best, and slow: with small activities the network is
    Gaussian, ``1 − WᵀW`` is the precision of the features, and what varies most together has an
    eigenvalue next to zero.

    Args:
        features: numbers of a sample, seen or not.
        hidden: neurons of every layer above.
        scale: what features are multiplied by inside: larger ones drive the layers further into
            saturation.
        activation: of the layers above.
        spectral_norm: keep the couplings so weak that the plain map contracts with factor
            ``radius``, so that there is one equilibrium whatever is seen.
        radius, bound: as in `HopfieldMLP`.
        generator: what the initial weights are drawn from; torch's global one by default.
        gradient, solver, tol, max_steps, on_failure: see `EquilibriumModel`. By default the nudge
            is weak: the nearer to one the norm is, the further a nudge moves what is hidden.

    Shapes: input (batch, 2·features), values and then the mask, 1 where a feature is seen and 0
    where its value does not matter; output (batch, features), the seen ones as given.
    """

    def __init__(
        self,
        features: int,
        hidden: Sequence[int],
        *,
        scale: float = 1.0,
        activation: Activation | None = None,
        spectral_norm: bool = True,
        radius: float = 0.99,
        bound: Bound = "tight",
        gradient: GradientEstimator | None = None,
        solver: Solver | None = None,
        tol: float | None = None,
        max_steps: int | None = None,
        on_failure: OnFailure = "warn",
        generator: torch.Generator | None = None,
    ) -> None:
        features = checks.whole_number("features", features, 1)
        hidden = checks.sizes("hidden", hidden, 1, "[256] (neurons of each layer)")
        scale = checks.number("scale", scale, 0, above=True, typical="1 to 10")
        checks.instance("activation", activation, Activation, "use Tanh()", optional=True)
        checks.flag("spectral_norm", spectral_norm)
        checks.choice("bound", bound, get_args(Bound))
        radius = checks.number("radius", radius, 0, above=True, typical="0.9 to 0.99")
        super().__init__(
            CompletionEnergy(Tanh() if activation is None else activation),
            gradient=CenteredEP(beta=1e-3) if gradient is None else gradient,
            solver=_PASSES if solver is None else solver,
            tol=tol,
            max_steps=max_steps,
            on_failure=on_failure,
        )
        self.features, self.hidden, self.scale = features, hidden, scale
        self.spectral_norm, self.radius = spectral_norm, radius
        self.bound: Bound = bound
        edge = 1.0 / chain_norm(len(hidden))
        self.offset = nn.Parameter(torch.zeros(features))
        self.drive = nn.Parameter(torch.zeros(hidden[0], 2 * features))
        self.layers = nn.ModuleList()
        with drawing_from(generator):
            for below, above in itertools.pairwise((features, *hidden)):
                limits = balls(bound, radius * edge, (above, below)) if spectral_norm else []
                self.layers.append(constrained(nn.Linear(below, above), *limits))

    @property
    def activation(self) -> Activation:
        return self.field.activation

    def field_input(self, x: Tensor) -> Tensor:
        values, mask = x.chunk(2, 1)
        return torch.cat([self.scale * values * mask, mask], 1)

    def system_parameters(self) -> Params:
        return (self.offset, self.drive, *weights_and_biases(self.layers))

    def readout_from(self, state: State) -> Tensor:
        return state[0] / self.scale

    def check_input(self, x: Tensor) -> None:
        check_batch(x, 2 * self.features, self.offset.dtype)
        mask = x[:, self.features :]
        if not is_traced() and bool(((mask != 0) & (mask != 1)).any()):
            raise InvalidInputError(
                f"The last {self.features} numbers of a sample say what is seen, 1 or 0: use "
                "torch.cat([values, mask], 1)."
            )

    variants: ClassVar[tuple[dict[str, Any], ...]] = ({}, {"hidden": (9, 5), "scale": 2.0})

    @classmethod
    def example(cls, **options: Any) -> tuple[CompletionNetwork, Tensor, Tensor]:
        """Class features that are never seen, beside others of which half are."""
        seen = torch.cat([torch.rand(5, 6) < 0.5, torch.zeros(5, 4)], 1)
        x = torch.cat([torch.randn(5, 10) * seen, seen], 1)
        return cls(10, **({"hidden": (9,)} | options)), x, torch.randint(6, 10, (5,))

    def extra_repr(self) -> str:
        return (
            f"features={self.features}, hidden={list(self.hidden)}, scale={self.scale:g}, "
            f"gradient={self.gradient}, solver={self.solver}"
        )


_PASSES = Anderson(2, GaussSeidel("symmetric"), max_steps=500)
"""Passes down and up, extrapolated from the last two, enough of them for a norm next to one."""
