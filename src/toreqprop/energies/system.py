"""A system bound to its tensors: what solvers iterate and estimators ask."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from toreqprop.energies.base import Energy, Params, VectorField
from toreqprop.energies.nudging import LinearNudge, Nudge
from toreqprop.errors import UnsupportedModelError
from toreqprop.solution import State


@dataclass(frozen=True)
class System:
    """A vector field with inputs, parameters and, in a nudged phase, a nudge.

    ``contraction`` is a proven Lipschitz constant of the free map in the Euclidean norm, or None.
    """

    field: VectorField
    x: Tensor
    params: Params
    drive: Params
    nudge: Nudge | None = None
    contraction: float | None = None

    @staticmethod
    def bind(
        field: VectorField, x: Tensor, params: Params, contraction: float | None = None
    ) -> System:
        """Bind tensors to a field and compute its drive, once for every phase."""
        return System(field, x, params, field.prepare(x, params), contraction=contraction)

    def nudged(self, nudge: Nudge) -> System:
        """The same system under a nudge; only a constant force keeps the contraction factor."""
        kept = self.contraction if isinstance(nudge, LinearNudge) else None
        return replace(self, nudge=nudge, contraction=kept)

    def initial_state(self) -> State:
        return self.field.initial_state(self.drive, self.params)

    def preactivation(self, state: State) -> State:
        """``u(s) − β·∂C/∂s``."""
        u = self.field.preactivation(state, self.drive, self.params)
        if self.nudge is None:
            return u
        return tuple(a - b for a, b in zip(u, self.nudge.force(state), strict=True))

    def map(self, state: State) -> State:
        """The fixed-point map ``f(s) = σ(u(s) − β·∂C/∂s)``."""
        return self.field.activate(self.preactivation(state))

    def energy(self, state: State) -> Tensor:
        """``E(s) + β·C(s)`` for each sample, shape (batch,)."""
        if not isinstance(self.field, Energy):
            raise UnsupportedModelError(
                f"{type(self.field).__name__} has no energy (its weights are not symmetric): "
                "use a symmetric model, or solver=FixedPoint() and VectorFieldEP()."
            )
        energy = self.field.energy(state, self.x, self.params)
        return energy if self.nudge is None else energy + self.nudge.energy(state)


def sample_norm(state: State) -> Tensor:
    """Euclidean norm of each sample over all its layers, shape (batch,)."""
    if len(state) == 1:
        return torch.linalg.vector_norm(state[0].flatten(1), dim=1)
    return torch.linalg.vector_norm(
        torch.stack([torch.linalg.vector_norm(s.flatten(1), dim=1) for s in state]), dim=0
    )


def neurons(state: State) -> int:
    """How many neurons one sample has."""
    return sum(s[0].numel() for s in state)


def per_sample(values: Tensor, like: Tensor) -> Tensor:
    """Reshape (batch,) so that it broadcasts against (batch, ...)."""
    return values.reshape(-1, *[1] * (like.dim() - 1))
