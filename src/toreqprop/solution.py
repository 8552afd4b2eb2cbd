"""What a relaxation returns: the state it reached and how far it can be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from torch import Tensor

State = tuple[Tensor, ...]
"""The free layers of a network, one tensor of shape (batch, ...) each."""


class Status(Enum):
    """How a relaxation ended; the value is the sentence a user reads."""

    CONVERGED = "the relaxation reached its tolerance"
    MAX_STEPS = (
        "the relaxation stopped at max_steps before reaching its tolerance: raise max_steps, "
        "raise tol, keep spectral_norm=True, or use solver=Anderson()"
    )
    DIVERGED = (
        "the relaxation produced non-finite values: keep spectral_norm=True, lower the learning "
        "rate, or use solver=FixedPoint(damping=0.5)"
    )


@dataclass(frozen=True)
class Solution:
    """An equilibrium, approximately.

    Attributes:
        state: one tensor (batch, ...) per free layer, the image ``f(s)`` of the last iterate.
        steps: evaluations of the fixed-point map ``f``, the largest over the batch.
        residual: (batch,) relative fixed-point residual ``‖f(s) − s‖ / scale`` of that iterate;
            from a kernel with a proven contraction factor L, L times that, which bounds the
            residual of the state itself.
        status: how the relaxation ended.
        error_bound: (batch,) proven bound on ``‖state − s*‖₂``, with ``s*`` the true equilibrium;
            infinite where no contraction factor below one is known.
        scale: (batch,) what the residual is relative to.
    """

    state: State
    steps: int
    residual: Tensor
    status: Status
    error_bound: Tensor
    scale: Tensor

    @property
    def converged(self) -> bool:
        """True if every sample reached the tolerance."""
        return self.status is Status.CONVERGED

    @property
    def worst_residual(self) -> float:
        """The largest relative residual in the batch."""
        return float(self.residual.max())
