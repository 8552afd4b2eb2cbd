"""Every mutation, by name: one tuple in the file of its area."""

from __future__ import annotations

from functools import cache

from toreqprop.errors import InvalidInputError
from toreqprop.verify.mutations import (
    bounds,
    certificates,
    couplings,
    estimators,
    kernels,
    solvers,
    tasks,
    training,
)
from toreqprop.verify.mutations.mutation import Mutation

AREAS = (estimators, solvers, kernels, bounds, certificates, couplings, tasks, training)


@cache
def mutations() -> dict[str, Mutation]:
    """In the order of the areas.

    Raises:
        InvalidInputError: two have the same name.
    """
    found: dict[str, Mutation] = {}
    for area in AREAS:
        for mutation in area.MUTATIONS:
            if mutation.name in found:
                raise InvalidInputError(f"Two mutations are called {mutation.name!r}: rename one.")
            found[mutation.name] = mutation
    return found
