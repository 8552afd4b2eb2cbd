"""Faults of gradient estimators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from toreqprop.energies import DenseEnergy, Gradients, LinearCoupling, StackEnergy
from toreqprop.energies.activations import Tanh
from toreqprop.energies.pairs import Pair
from toreqprop.gradients import CenteredEP, ContrastiveEstimator, ImplicitGradient, base
from toreqprop.gradients import clamped as clamped_learning
from toreqprop.gradients import continual as continual_ep
from toreqprop.gradients import holomorphic as holomorphic_ep
from toreqprop.gradients import vector_field as vector_field_ep
from toreqprop.verify.mutations.mutation import Mutation, swapped, together

AREA = "estimators"


def times(index: int, factor: float) -> Callable[[Any], Any]:
    """One of a function's gradients times a factor."""

    def change(right: Any) -> Any:
        def spoiled(*given: Any, **more: Any) -> Gradients:
            found = list(right(*given, **more))
            one = found[index]
            found[index] = None if one is None else factor * one
            return tuple(found)

        return spoiled

    return change


def _implicit(right: Any) -> Any:
    def backward(self: Any, problem: Any, free: Any, cotangent: Any) -> Gradients:
        found = right(self, problem, free, cotangent)  # the phases are still relaxed, and reported
        if problem.kernel is not None:
            return found
        silent = replace(problem, report=lambda phase, solution: None)
        return ImplicitGradient().backward(silent, free, cotangent)

    return backward


def _too_much(right: Any) -> Any:
    return property(lambda self: 1.1 * right.fget(self))


def _first_sample(right: Any) -> Any:
    def measured(*given: Any) -> Any:
        direction, scale, largest = right(*given)
        return direction, torch.cat([1.3 * scale[:1], scale[1:]]), largest

    return measured


def _every_other(first: int, factor: float) -> Callable[[Any], Any]:
    """Every second gradient from the first on, those of all biases or of all upper matrices."""

    def change(right: Any) -> Any:
        def spoiled(*given: Any) -> Gradients | None:
            found = right(*given)
            if found is None:
                return None
            bad = range(first, len(found), 2)
            return tuple(factor * g if k in bad else g for k, g in enumerate(found))

        return spoiled

    return change


def _upper_matrix(right: Any) -> Any:
    def gradients(self: Any, post: Any, pre: Any, *rest: Any) -> Gradients:
        matrix, bias = right(self, post, pre, *rest)
        between = isinstance(pre, Pair) and matrix is not None
        return (0.7 * matrix if between else matrix), bias

    return gradients


def _one_end(right: Any) -> Any:
    """Only the upper end's difference counts: ``p̃·q̄ᵀ`` without ``p̄·q̃ᵀ``."""

    def gradients(
        self: Any, post: Any, pre: Any, weight: Any, params: Any, prepared: Any, wants: Any
    ) -> Gradients:
        still = Pair(pre.center, torch.zeros_like(pre.shift)) if isinstance(pre, Pair) else pre
        return right(self, post, still, weight, params, prepared, wants)

    return gradients


def _linear_shift(right: Any) -> Any:
    def pair(self: Any, center: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        value = torch.tanh(center)
        return value, (1 - value * value) * shift

    return pair


def _cold(right: Any) -> Any:
    def energy_gradients(self: Any, *given: Any) -> Gradients:
        return right(replace(self, feedback=1.0), *given)

    return energy_gradients


def _weaker(right: Any) -> Any:
    def asymmetry(system: Any, state: Any) -> Any:
        product = right(system, state)
        return lambda v: tuple(0.7 * t for t in product(v))

    return asymmetry


MUTATIONS = (
    Mutation(
        "implicit gradient on the general path", AREA,
        "without a kernel the contrastive estimators hand over the implicit gradient", 67,
        swapped(ContrastiveEstimator, "backward", _implicit),
    ),
    Mutation(
        "W_rec's gradient x0.7", AREA, "of a looped network's recurrent matrix", 9,
        swapped(DenseEnergy, "energy_gradients", times(3, 0.7)),
    ),
    Mutation(
        "input's gradient x0.9", AREA, "what a looped network hands on to modules before it", 69,
        swapped(DenseEnergy, "energy_gradients", times(0, 0.9)),
    ),
    Mutation(
        "bias's gradient x0.7", AREA, "of a looped network", 9,
        swapped(DenseEnergy, "energy_gradients", times(2, 0.7)),
    ),
    Mutation(
        "sign of a stack's bias", AREA, "the gradient of every bias of a stack points uphill", 69,
        together(
            swapped(LinearCoupling, "gradients", times(1, -1.0)),
            swapped(StackEnergy, "_dense_gradients", _every_other(2, -1.0)),
        ),
    ),
    Mutation(
        "upper matrices x0.7", AREA, "gradients of matrices between layers, not the first", 67,
        together(
            swapped(LinearCoupling, "gradients", _upper_matrix),
            swapped(StackEnergy, "_dense_gradients", _every_other(3, 0.7)),
        ),
    ),
    Mutation(
        "half of the Hebbian contrast", AREA, "what a weight's lower end moves is left out", 67,
        together(
            swapped(LinearCoupling, "gradients", _one_end),
            swapped(StackEnergy, "_dense_gradients", lambda right: lambda *given: None),
        ),
    ),
    Mutation(
        "centred contrast one-sided", AREA, "CenteredEP contrasts with the free phase", 9,
        swapped(CenteredEP, "betas", lambda right: property(lambda self: (self.beta, 0.0))),
    ),
    Mutation(
        "contrast x1.1", AREA, "the contrast is divided by a tenth less than it was nudged by", 9,
        swapped(ContrastiveEstimator, "coefficient", _too_much),
    ),
    Mutation(
        "one sample x1.3", AREA, "the first sample of a batch counts too much", 67,
        swapped(base, "measured", _first_sample),
    ),
    Mutation(
        "shift of tanh to first order", AREA, "a finite nudge becomes an infinitesimal one", 67,
        swapped(Tanh, "pair", _linear_shift),
    ),
    Mutation(
        "temperatures left out of gradients", AREA, "with weak feedback they learn too slowly", 69,
        swapped(StackEnergy, "energy_gradients", _cold),
    ),
    Mutation(
        "correction of vector fields x0.7", AREA, "the asymmetry is not quite made up for", 69,
        swapped(vector_field_ep, "jacobian_asymmetry", _weaker),
    ),
    Mutation(
        "holomorphic points counted once", AREA, "conjugate pairs do not count twice", 69,
        swapped(
            holomorphic_ep, "_coefficient",
            lambda right: lambda k, n: right(k, n) if k == 0 or 4 * k == n else 0.5 * right(k, n),
        ),
    ),
    Mutation(
        "contrast of clamps x1.2", AREA, "contrastive learning is divided by too weak a force", 53,
        swapped(
            clamped_learning, "_contrast",
            lambda right: lambda *given: tuple(
                None if g is None else 1.2 * g for g in right(*given)
            ),
        ),
    ),
    Mutation(
        "later steps of continual EP halved", AREA, "increments after the first count half", 69,
        swapped(
            continual_ep, "_add",
            lambda right: lambda total, part: part if total is None or part is None
            else total + 0.5 * part,
        ),
    ),
)  # fmt: skip
