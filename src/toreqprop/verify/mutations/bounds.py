"""Faults of spectral bounds and Lipschitz constants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from toreqprop.energies import DenseEnergy, StackEnergy, SymmetricBall, tight_ball
from toreqprop.energies.couplings import convolution
from toreqprop.models import hopfield_mlp, looped_mlp, projection
from toreqprop.verify.mutations.mutation import Mutation, Plant, swapped, together

AREA = "bounds"


def _radius(factor: float) -> Plant:
    def change(right: Any) -> Any:
        def balls(bound: Any, radius: float, *given: Any, **options: Any) -> Any:
            return right(bound, factor * radius, *given, **options)

        return balls

    return together(swapped(looped_mlp, "balls", change), swapped(hopfield_mlp, "balls", change))


def _times(factor: float) -> Any:
    return lambda right: lambda self, params, shapes: factor * right(self, params, shapes)


def _unlike(right: Any) -> Any:
    """The matrix is scaled but not symmetrised."""

    def forward(self: Any, weight: torch.Tensor) -> torch.Tensor:
        return self.ball(weight)

    return forward


MUTATIONS = (
    Mutation(
        "spectral radius x1.05", AREA, "weights are scaled to a norm a twentieth too large", 1,
        _radius(1.05),
    ),
    Mutation(
        "spectral radius of a stack x1.02", AREA, "the same for a stack, by a fiftieth", 67,
        _radius(1.02),
    ),
    Mutation(
        "lipschitz() x0.9", AREA, "a looped network states a constant a tenth too small", 1,
        swapped(DenseEnergy, "lipschitz", _times(0.9)),
    ),
    Mutation(
        "lipschitz() of a stack x0.9", AREA, "a stack states a constant a tenth too small", 67,
        swapped(StackEnergy, "lipschitz", _times(0.9)),
    ),
    Mutation(
        "feedback squared in lipschitz()", AREA, "the constant counts weak feedback twice", 67,
        swapped(
            StackEnergy, "lipschitz",
            lambda right: lambda self, params, shapes: right(
                replace(self, feedback=self.feedback**2), params, shapes
            ),
        ),
    ),
    Mutation(
        "tight ball without its margin", AREA, "an estimate from below is taken for the norm", 1,
        swapped(tight_ball, "MARGIN", lambda right: 0.98),
    ),
    Mutation(
        "norm of a convolution x0.8", AREA, "the constant of a convolutional stack", 67,
        swapped(
            convolution, "convolution_norm", lambda right: lambda *given: 0.8 * right(*given)
        ),
    ),
    Mutation(
        "projected onto a larger ball", AREA, "project_ lets a tenth more than the radius through",
        70, swapped(
            projection, "project_",
            lambda right: lambda model, radius: right(model, 1.1 * radius),
        ),
    ),
    Mutation(
        "recurrence not symmetric", AREA, "the recurrent matrix is used as it is: no energy",
        69, swapped(SymmetricBall, "forward", _unlike),
    ),
)  # fmt: skip
