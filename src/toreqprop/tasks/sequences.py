"""Tasks on sequences of symbols: reverse them, sort them. Drawn at random, none of it stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from toreqprop.errors import InvalidInputError

SEQUENCE_TASKS: dict[str, Callable[[Tensor], Tensor]] = {
    "reversal": lambda x: x.flip(1),
    "sorting": lambda x: x.sort(1).values,
}


@dataclass(frozen=True)
class Sequences:
    """Inputs and targets, int64 of shape (count, length); no held-out sequence is trained on."""

    x: Tensor
    y: Tensor
    validation_x: Tensor
    validation_y: Tensor
    test_x: Tensor
    test_y: Tensor

    @property
    def chance(self) -> float:
        """Share of the most frequent symbol among the test targets at each position: what can be
        said without looking at the input."""
        counts = torch.nn.functional.one_hot(self.test_y).sum(0)
        return float(counts.amax(1).sum() / self.test_y.numel())


def sequences(
    task: str,
    *,
    length: int = 8,
    symbols: int = 10,
    train: int,
    validation: int = 1000,
    test: int = 5000,
    seed: int = 0,
) -> Sequences:
    """Random sequences for a task; test, validation and training sets share no sequence.

    Raises:
        InvalidInputError: an unknown task, or more held-out sequences than half of those that
            exist.
    """
    if task not in SEQUENCE_TASKS:
        raise InvalidInputError(
            f"There is no sequence task {task!r}: choose one of {', '.join(SEQUENCE_TASKS)}."
        )
    held = validation + test
    if held > symbols**length // 2:
        raise InvalidInputError(
            f"{held} held-out sequences are too many of {symbols**length}: ask for fewer or make "
            "them longer."
        )
    generator = torch.Generator().manual_seed(seed)
    out = _distinct(held, length, symbols, generator)
    known = {tuple(row) for row in out.tolist()}
    x = torch.randint(0, symbols, (train, length), generator=generator)
    while clashes := [k for k, row in enumerate(x.tolist()) if tuple(row) in known]:
        x[clashes] = torch.randint(0, symbols, (len(clashes), length), generator=generator)
    target = SEQUENCE_TASKS[task]
    test_x, validation_x = out[:test], out[test:]
    return Sequences(x, target(x), validation_x, target(validation_x), test_x, target(test_x))


def _distinct(count: int, length: int, symbols: int, generator: torch.Generator) -> Tensor:
    found: dict[tuple[int, ...], None] = {}
    while len(found) < count:
        drawn = torch.randint(0, symbols, (count, length), generator=generator)
        found.update(dict.fromkeys(tuple(row) for row in drawn.tolist()))
    return torch.tensor(list(found)[:count])
