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
from toreqprop.kernels import Kernel, Limits, Pair, Relaxed
from toreqprop.solution import State


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

    def relax(
        self,
        weight: Tensor,
        drive: Tensor,
        state: Tensor | None,
        product: Tensor | None,
        limits: Limits,
        **rest: Any,
    ) -> Relaxed:
        weight, limits = self._spoil(weight, limits)
        return self.right.relax(weight, drive, state, product, limits, **rest)

    def relax_pair(
        self,
        weight: Tensor,
        drive: Tensor,
        direction: Tensor,
        beta: float,
        state: Tensor,
        product: Tensor,
        limits: Limits,
        **rest: Any,
    ) -> Pair:
        weight, limits = self._spoil(weight, limits)
        return self.right.relax_pair(weight, drive, direction, beta, state, product, limits, **rest)

    def _spoil(self, weight: Tensor, limits: Limits) -> tuple[Tensor, Limits]:
        if self.fault == "transposed weight":
            weight = weight.mT.contiguous()
        if self.fault == "one step less":
            limits = Limits(limits.tol, max(1, limits.max_steps - 1), limits.contraction)
        return weight, limits

    def normalise(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        direction, rms = self.right.normalise(cotangent)
        return (-direction if self.fault == "sign of the nudge" else direction), rms

    def contrast(self, up: Tensor, down: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.right.contrast(up, down, weight)


@contextmanager
def faulty_kernels(fault: str | None) -> Iterator[None]:
    """Within it, every model that asks for a kernel gets one with this fault."""
    if fault is None:
        yield
        return
    from toreqprop import equilibrium
    from toreqprop.kernels import get_kernel

    def substitute(name: str) -> Kernel:
        kernel = get_kernel(name)
        return kernel if name == "numpy" else FaultyKernel(kernel, fault)

    with patch.object(equilibrium, "get_kernel", substitute):
        yield
