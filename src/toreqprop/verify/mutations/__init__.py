"""Faults planted in the library itself, to measure what the tracks see: the mutation score."""

from toreqprop.verify.mutations.mutation import Mutation, Plant
from toreqprop.verify.mutations.planting import plantable

__all__ = ["Mutation", "Plant", "plantable"]
