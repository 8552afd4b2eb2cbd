"""Faults of the compiled code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from toreqprop.kernels import ball
from toreqprop.kernels.chain import Chain
from toreqprop.kernels.compiled import NumbaKernel
from toreqprop.models.loop_step import LoopStep
from toreqprop.models.stack_step import StackStep
from toreqprop.solution import Pushes, Solution
from toreqprop.solvers import relaxation
from toreqprop.verify.mutations.mutation import Mutation, swapped, together

AREA = "kernels"


def _pair(change: Any) -> Any:
    """`NumbaKernel.relax_pair` with other arguments."""

    def swap(right: Any) -> Any:
        def relax_pair(
            self: Any, weight: Tensor, drive: Tensor, push: Tensor, memory: Any, **rest: Any
        ) -> Solution:
            weight, drive, push = change(weight, drive, push)
            return right(self, weight, drive, push, memory, **rest)

        return relax_pair

    return swap


def _fewer(right: Any) -> Any:
    def relax(self: Any, *given: Any, max_steps: int, **rest: Any) -> Solution:
        return right(self, *given, max_steps=max(1, max_steps - 1), **rest)

    return relax


def _rounded(right: Any) -> Any:
    def relax(self: Any, weight: Tensor, drive: Tensor, start: Any, **rest: Any) -> Solution:
        return right(self, weight, drive.float().to(drive.dtype), start, **rest)

    return relax


def _modest(right: Any) -> Any:
    def relax_pair(*given: Any, **rest: Any) -> Solution:
        found = right(*given, **rest)
        return found.but(residual=0.5 * found.residual)

    return relax_pair


def _stronger_feedback(right: Any) -> Any:
    def chain(*given: Any) -> Chain | None:
        found = right(*given)
        return None if found is None else replace(found, feedback=1.05 * found.feedback)

    return chain


def _harder(right: Any) -> Any:
    def pushes(*given: Any) -> Pushes:
        return [None if p is None else (p[0], 1.05 * p[1]) for p in right(*given)]

    return pushes


def _sloppy(right: Any) -> Any:
    def relax(self: Any, start: Any, *, tol: float, max_steps: int) -> Solution:
        return right(self, start, tol=20 * tol, max_steps=max_steps)

    return relax


def _straight_through(right: Any) -> Any:
    def gradient(given: Tensor, weight: Tensor, bound: Any) -> Tensor:
        return bound.factor * 0.5 * (given + given.mT)

    return gradient


def _not_transposed(right: Any) -> Any:
    def gradient(given: Tensor, weight: Tensor, bound: Any) -> Tensor:
        return right(torch.triu(given) + torch.triu(given, 1).mT, weight, bound)

    return gradient


def _of_gradients(place: int, factor: float) -> Any:
    """One of those that a compiled step finds, times a factor."""

    def change(right: Any) -> Any:
        def nudged(*given: Any) -> Any:
            found = right(*given)
            if found.solution is not None:
                found.gradients[place].mul_(factor)
            return found

        return nudged

    return change


MUTATIONS = (
    Mutation(
        "compiled step's upper matrix x0.7", AREA, "one call finds a gradient that is too short",
        67, swapped(StackStep, "nudged", _of_gradients(2, 0.7), in_step=True),
    ),
    Mutation(
        "compiled step's recurrence the wrong way", AREA, "a gradient has the wrong sign",
        67, swapped(LoopStep, "nudged", _of_gradients(2, -1.0), in_step=True),
    ),
    Mutation(
        "nudge's sign in the kernel", AREA, "compiled nudged phases are pushed the wrong way", 22,
        swapped(NumbaKernel, "relax_pair", _pair(lambda w, d, p: (w, d, -p))),
    ),
    Mutation(
        "nudge x1.01 in the kernel", AREA, "the compiled nudged phases are pushed too far", 22,
        swapped(NumbaKernel, "relax_pair", _pair(lambda w, d, p: (w, d, 1.01 * p))),
    ),
    Mutation(
        "weight transposed in the kernel", AREA, "free phases use the transposed matrix", 22,
        swapped(
            NumbaKernel, "relax",
            lambda right: lambda self, w, *given, **rest: right(
                self, w.mT.contiguous(), *given, **rest
            ),
        ),
    ),
    Mutation(
        "kernel one step short", AREA, "the compiled free phase leaves a step out", 22,
        swapped(NumbaKernel, "relax", _fewer),
    ),
    Mutation(
        "float32 inside a float64 kernel", AREA, "the drive is rounded on its way", 22,
        swapped(NumbaKernel, "relax", _rounded),
    ),
    Mutation(
        "kernel's residual halved", AREA, "what the compiled nudged phases report", 22,
        swapped(NumbaKernel, "relax_pair", _modest),
    ),
    Mutation(
        "stack's feedback x1.05 in the kernel", AREA, "the compiled stack feeds back too much", 67,
        swapped(relaxation, "_chain", _stronger_feedback),
    ),
    Mutation(
        "stack's nudge x1.05 in the kernel", AREA, "the compiled stack is nudged too far", 67,
        swapped(relaxation, "_pushes", _harder),
    ),
    Mutation(
        "stack's kernel stops early", AREA, "at twenty times the tolerance", 68,
        swapped(Chain, "relax", _sloppy),
    ),
    Mutation(
        "ball's own slope left out", AREA, "the gradient passes a ball as if it were fixed",
        69, swapped(ball, "symmetric_ball_gradient", _straight_through),
    ),
    Mutation(
        "lower triangle forgotten", AREA, "a symmetric matrix learns by its upper half",
        69,
        together(swapped(ball, "symmetric_ball_gradient", _not_transposed)),
    ),
)  # fmt: skip
