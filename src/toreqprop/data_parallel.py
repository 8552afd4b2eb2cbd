"""One training in several processes: each takes a share of every batch, gradients are summed.

The loss is a mean over samples, so with shares of n₁, …, n_N samples of a batch of n

    ∂C/∂θ = Σ_k (n_k / n) ∂C_k/∂θ

is the gradient of the whole batch, also where shares differ in size. EP's gradients of all
parameters come at once, at the end of the nudged phases: there is nothing to overlap with, and one
sum of one flat tensor is what a step costs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed, nn

from toreqprop.errors import InvalidInputError


@dataclass(frozen=True)
class Group:
    """This process among those of a training; all of them make every call here together."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the process that measures, shows and writes."""
        return self.rank == 0

    def share(self, batch: Tensor) -> tuple[Tensor, float]:
        """This process's rows of a batch and their part of it.

        Where there are fewer rows than processes some take a row that does not count, so that all
        of them do the same steps.
        """
        if self.size == 1:
            return batch, 1.0
        mine = batch.tensor_split(self.size)[self.rank]
        return (mine, len(mine) / len(batch)) if len(mine) else (batch[:1], 0.0)

    def sum_gradients(self, model: nn.Module) -> None:
        """Replace every gradient by the sum over all processes."""
        if self.size == 1:
            return
        trained = [p for p in model.parameters() if p.requires_grad]
        found = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
        for dtype in dict.fromkeys(g.dtype for g in found):
            same = [k for k, g in enumerate(found) if g.dtype == dtype]
            flat = torch.cat([found[k].reshape(-1) for k in same])
            distributed.all_reduce(flat)
            parts = flat.split([found[k].numel() for k in same])
            for k, part in zip(same, parts, strict=True):
                trained[k].grad = part.view_as(trained[k])

    def summed(self, value: float) -> float:
        """The sum of a number over all processes."""
        if self.size == 1:
            return value
        total = torch.tensor(value, dtype=torch.float64)
        distributed.all_reduce(total)
        return float(total)

    def told(self, value: Any) -> Any:
        """What the leading process has; the others' own is ignored."""
        if self.size == 1:
            return value
        held = [value]
        distributed.broadcast_object_list(held)
        return held[0]


ALONE = Group()


@contextmanager
def joined() -> Iterator[Group]:
    """The group that `torchrun` started this process in, or that it joined before, else it alone.

    Raises:
        InvalidInputError: the processes do not find each other.
    """
    if distributed.is_initialized():
        yield Group(distributed.get_rank(), distributed.get_world_size())
        return
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield ALONE
        return
    try:
        distributed.init_process_group("gloo")
    except (ValueError, RuntimeError) as error:
        raise InvalidInputError(
            f"The processes of this training do not find each other ({error}): start them with "
            "`torchrun --nproc-per-node 2 -m toreqprop train ...`."
        ) from None
    try:
        yield Group(distributed.get_rank(), distributed.get_world_size())
    finally:
        distributed.destroy_process_group()
