"""The contract of a kernel: the two operations an equilibrium propagation step is made of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from toreqprop.solution import Solution, Status


class Kernel(ABC):
    """``h = tanh(drive + h·W)`` with symmetric W, relaxed by plain iteration, on the CPU.

    ``kernels.reference`` defines both operations; `verify.harness` holds each kernel against it.
    Shapes: ``weight`` (hidden, hidden), all else (batch, hidden). ``contraction`` is a proven
    contraction factor, or None; ``record`` receives a copy of every image.
    """

    name: ClassVar[str]

    @abstractmethod
    def relax(
        self,
        weight: Tensor,
        drive: Tensor,
        start: Tensor | None,
        *,
        tol: float,
        max_steps: int,
        contraction: float | None,
        record: list[tuple[Tensor, ...]] | None = None,
    ) -> Solution:
        """Iterate from ``start`` (None is ``tanh(drive)``), each sample until it has converged.

        The solution's ``memory`` is (last iterate, its product with W), for `relax_pair`.
        """

    @abstractmethod
    def relax_pair(
        self,
        weight: Tensor,
        drive: Tensor,
        push: Tensor,
        memory: tuple[Tensor, Tensor],
        *,
        tol: float,
        max_steps: int,
        contraction: float | None,
        strength: float = 1.0,
        image: Tensor | None = None,
        record: list[tuple[Tensor, ...]] | None = None,
    ) -> Solution:
        """Relax under ``drive ∓ strength·push`` from the free phase's ``memory``, as center and
        shift.

        ``image`` is ``tanh(drive + product)`` of that memory, where the caller knows it already.
        """


def status(converged: bool, finite: bool) -> Status:
    """How a relaxation ended."""
    if converged:
        return Status.CONVERGED
    return Status.MAX_STEPS if finite else Status.DIVERGED
