"""The contract of a kernel: the few operations an equilibrium propagation step is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor


@dataclass(frozen=True)
class Limits:
    """When a relaxation stops.

    With a proven contraction factor ``L`` the image ``f(s)`` that is returned has a residual of
    at most ``L·‖f(s) − s‖``: that bound is what is compared with ``tol``. Without one (None),
    ``‖f(s) − s‖`` itself is.
    """

    tol: float
    max_steps: int
    contraction: float | None = None


class Relaxed(NamedTuple):
    """Where a relaxation ended, for each sample.

    ``image`` (batch, hidden) is ``f(state)``, the result; ``state`` and ``product = state·W`` are
    the last iterate and what is already known of it (None where not asked for). ``residual`` is
    the proven relative residual of the image, ``error_bound`` its distance to the equilibrium,
    ``scale`` what the residual is relative to; ``steps`` counts evaluations of ``f``.
    """

    image: Tensor
    state: Tensor | None
    product: Tensor | None
    residual: Tensor
    error_bound: Tensor
    scale: Tensor
    steps: int
    converged: bool
    finite: bool


class Pair(NamedTuple):
    """Where the relaxations under both signs of a nudge ended, for each sample.

    ``up`` and ``down`` (batch, hidden) are the equilibria under +β and −β; ``residual`` (proven,
    relative to ``scale``) and ``error_bound`` hold for either. ``steps`` counts evaluations of f
    for each sign.
    """

    up: Tensor
    down: Tensor
    residual: Tensor
    error_bound: Tensor
    scale: Tensor
    steps: int
    converged: bool
    finite: bool


class Kernel(ABC):
    """``h = tanh(drive + h·W)`` with symmetric W, relaxed and contrasted; all tensors on the CPU.

    ``kernels.reference`` defines every operation; the harness holds each kernel against it.
    """

    name: ClassVar[str]

    @abstractmethod
    def relax(
        self,
        weight: Tensor,
        drive: Tensor,
        state: Tensor | None,
        product: Tensor | None,
        limits: Limits,
        *,
        scale: Tensor | None = None,
        origin: Tensor | None = None,
        keep: bool = True,
        record: list[Tensor] | None = None,
    ) -> Relaxed:
        """Iterate ``f(s) = tanh(drive + s·W)`` from ``state``, each sample until it has converged.

        Args:
            weight, drive: (hidden, hidden), (batch, hidden).
            state: (batch, hidden) where to start; None is ``tanh(drive)``.
            product: ``state·W`` where it is known; the first evaluation then costs no product.
            limits: when to stop.
            scale: (batch,) what residuals are relative to; by default ``‖f(s)‖``.
            origin: (batch, hidden); residuals are relative to ``‖f(state) − origin‖`` times
                `reference.NUDGE_SLACK`, or ``‖f(s)‖`` where that is less; a
                sample for which that is zero stops at once.
            keep: whether the last iterate and its product are returned.
            record: receives a copy of every ``f(s)``.
        """

    @abstractmethod
    def relax_pair(
        self,
        weight: Tensor,
        drive: Tensor,
        direction: Tensor,
        beta: float,
        state: Tensor,
        product: Tensor,
        limits: Limits,
        *,
        record: list[tuple[Tensor, Tensor]] | None = None,
    ) -> Pair:
        """Relax under ``drive ∓ β·direction`` from ``state``, both signs together.

        See `reference.relax_pair`. ``record`` receives copies of both images at every step.
        """

    @abstractmethod
    def normalise(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        """A direction of RMS one per sample (batch, hidden), and the RMS (batch,)."""

    @abstractmethod
    def contrast(self, up: Tensor, down: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``δ = −w·(up − down)``, ``½(up + down)`` and ``Σ_batch δ``, with w (batch,)."""
