"""Deep Hopfield networks: layers that talk to each other in both directions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from toreqprop.energies import Activation, LayeredEnergy, Params, SpectralBall, Tanh
from toreqprop.errors import InvalidInputError
from toreqprop.gradients import GradientEstimator
from toreqprop.models.base import EquilibriumModel, OnFailure, check_batch
from toreqprop.solution import State
from toreqprop.solvers import GaussSeidel, Solver

Output = Literal["readout", "free"]


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
        gradient: GradientEstimator | None = None,
        solver: Solver | None = None,
        tol: float = 1e-3,
        max_steps: int = 200,
        on_failure: OnFailure = "warn",
    ) -> None:
        if len(sizes) < 3 or min(sizes) < 1:
            raise InvalidInputError(
                f"sizes must be inputs, at least one hidden layer and outputs, all >= 1, such as "
                f"[784, 1024, 10]; got {list(sizes)}."
            )
        if output not in ("readout", "free"):
            raise InvalidInputError(f'output must be "readout" or "free", got {output!r}.')
        super().__init__(
            LayeredEnergy(Tanh() if activation is None else activation),
            gradient=gradient,
            solver=GaussSeidel() if solver is None else solver,
            tol=tol,
            max_steps=max_steps,
            on_failure=on_failure,
        )
        self.sizes = tuple(sizes)
        self.output: Output = output
        self.spectral_norm = spectral_norm
        self.radius = radius
        free = self.sizes if output == "free" else self.sizes[:-1]
        self.layers = nn.ModuleList(
            nn.Linear(below, above) for below, above in itertools.pairwise(free)
        )
        self.readout = nn.Linear(free[-1], self.sizes[-1]) if output == "readout" else None
        if spectral_norm and len(self.layers) > 1:
            limit = radius / _chain_norm([1.0] * (len(self.layers) - 1))
            for layer in list(self.layers)[1:]:
                parametrize.register_parametrization(layer, "weight", SpectralBall(limit))

    def system_parameters(self) -> Params:
        found: list[Tensor] = []
        for layer in self.layers:
            found += [layer.weight, layer.bias]  # type: ignore[list-item]
        return tuple(found)

    def readout_from(self, state: State) -> Tensor:
        return state[-1] if self.readout is None else self.readout(state[-1])

    def check_input(self, x: Tensor) -> None:
        check_batch(x, self.sizes[0], self.layers[0].bias.dtype)  # type: ignore[arg-type]

    @torch.no_grad()
    def lipschitz(self) -> float:
        """An upper bound on the plain map's Lipschitz constant.

        The Jacobian is block tridiagonal with the couplings ``W_l`` off its diagonal; its norm is
        at most that of the small tridiagonal matrix of their norms.
        """
        norms = [
            float(torch.linalg.matrix_norm(layer.weight.detach(), ord=2))  # type: ignore[operator]
            for layer in list(self.layers)[1:]
        ]
        return _chain_norm(norms)

    def config(self) -> dict[str, Any]:
        return {
            "sizes": self.sizes,
            "activation": self.field.activation,
            "output": self.output,
            "spectral_norm": self.spectral_norm,
            "radius": self.radius,
            "gradient": self.gradient,
            "solver": self.solver,
            "tol": self.tol,
            "max_steps": self.max_steps,
            "on_failure": self.on_failure,
        }

    @classmethod
    def example(cls, **options: Any) -> tuple[HopfieldMLP, Tensor, Tensor]:
        return cls([6, 9, 8, 4], **options), torch.randn(5, 6), torch.randint(0, 4, (5,))

    def extra_repr(self) -> str:
        return (
            f"sizes={list(self.sizes)}, output={self.output!r}, gradient={self.gradient}, "
            f"solver={self.solver}, tol={self.tol:g}, max_steps={self.max_steps}"
        )


def _chain_norm(couplings: list[float]) -> float:
    """Spectral norm of the symmetric tridiagonal matrix with these numbers off the diagonal."""
    if not couplings:
        return 0.0
    if len(set(couplings)) == 1:
        return 2 * couplings[0] * math.cos(math.pi / (len(couplings) + 2))
    beside = torch.tensor(couplings, dtype=torch.float64)
    matrix = torch.diag(beside, 1) + torch.diag(beside, -1)
    return float(torch.linalg.eigvalsh(matrix)[-1])
