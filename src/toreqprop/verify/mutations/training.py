"""Faults of the training loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from toreqprop import training
from toreqprop.verify.mutations.mutation import Mutation, swapped

AREA = "training"


def _whole_batches(right: Any) -> Any:
    def minibatches(count: int, size: int, generator: Any) -> Iterator[Tensor]:
        yield from (batch for batch in right(count, size, generator) if len(batch) == size)

    return minibatches


def _in_order(right: Any) -> Any:
    def minibatches(count: int, size: int, generator: Any) -> Iterator[Tensor]:
        yield from torch.arange(count).split(size)

    return minibatches


def _with_repeats(right: Any) -> Any:
    """Drawn with replacement: some rows twice, others never."""

    def minibatches(count: int, size: int, generator: Any) -> Iterator[Tensor]:
        yield from torch.randint(0, count, (count,), generator=generator).split(size)

    return minibatches


MUTATIONS = (
    Mutation(
        "gradients pile up", AREA, "they are not cleared between steps", 15,
        swapped(torch.optim.Optimizer, "zero_grad", lambda right: lambda self, *given: None),
    ),
    Mutation(
        "last batch dropped", AREA, "where it is smaller than the others", 15,
        swapped(training, "minibatches", _whole_batches),
    ),
    Mutation(
        "never shuffled", AREA, "rows come in the order of the data", 15,
        swapped(training, "minibatches", _in_order),
    ),
    Mutation(
        "rows drawn with repeats", AREA, "an epoch misses a third of them", 66,
        swapped(training, "minibatches", _with_repeats),
    ),
    Mutation(
        "rate does not fall", AREA, "the schedule is left out", 15,
        swapped(
            torch.optim.lr_scheduler.CosineAnnealingLR, "step", lambda right: lambda self: None
        ),
    ),
    Mutation(
        "decay inside the gradient", AREA, "AdamW is replaced by Adam with L2", 15,
        swapped(torch.optim, "AdamW", lambda right: torch.optim.Adam),
    ),
)  # fmt: skip
