"""Faults to put in on purpose: estimators and kernels that are wrong in one known way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar
from unittest.mock import patch

from torch import Tensor

from toreqprop.energies import Gradients
from toreqprop.gradients import CenteredEP, GradientEstimator
from toreqprop.gradients.base import Problem
from toreqprop.kernels import Kernel
from toreqprop.solution import Solution, State


@dataclass(frozen=True)
class WrongSign(GradientEstimator):
    """An estimator whose gradient points uphill."""

    right: GradientEstimator = CenteredEP()
    bias: ClassVar[str] = "the wrong sign"

    def backward(self, problem: Problem, free: State, cotangent: State) -> Gradients:
        found = self.right.backward(problem, free, cotangent)
        return tuple(None if g is None else -g for g in found)


KERNEL_FAULTS = ("sign of the nudge", "transposed weight", "one step less")


class FaultyKernel(Kernel):
    """A kernel with one fault."""

    name: ClassVar[str] = "faulty"

    def __init__(self, right: Kernel, fault: str) -> None:
        self.right = right
        self.fault = fault

    def relax(self, weight: Tensor, drive: Tensor, start: Tensor | None, **rest: Any) -> Solution:
        return self.right.relax(self._spoiled(weight), drive, start, **self._limits(rest))

    def relax_pair(
        self,
        weight: Tensor,
        drive: Tensor,
        push: Tensor,
        memory: tuple[Tensor, Tensor],
        **rest: Any,
    ) -> Solution:
        push = -push if self.fault == "sign of the nudge" else push
        limits = self._limits(rest)
        return self.right.relax_pair(self._spoiled(weight), drive, push, memory, **limits)

    def _spoiled(self, weight: Tensor) -> Tensor:
        return weight.mT.contiguous() if self.fault == "transposed weight" else weight

    def _limits(self, rest: dict[str, Any]) -> dict[str, Any]:
        if self.fault == "one step less":
            return {**rest, "max_steps": max(1, rest["max_steps"] - 1)}
        return rest


@contextmanager
def faulty_kernels(fault: str | None) -> Iterator[None]:
    """Within it, every model that asks for a kernel gets one with this fault."""
    if fault is None:
        yield
        return
    from toreqprop.kernels import get_kernel
    from toreqprop.solvers import relaxation

    def substitute(name: str | None) -> Kernel | None:
        kernel = get_kernel(name)
        if kernel is None or name == "numpy":
            return kernel
        return FaultyKernel(kernel, fault)

    with patch.object(relaxation, "get_kernel", substitute):
        yield
