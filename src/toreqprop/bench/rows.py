"""The rows of the benchmark, as data: a task, a network, how it is trained, what must hold.

A new row is one entry of `ROWS`; `toreqprop tune NAME` finds its settings, and until then the
report lists it as not run. Nothing else names a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toreqprop.errors import InvalidInputError
from toreqprop.tasks import Task, get


@dataclass(frozen=True)
class Row:
    """One comparison.

    Args:
        name: what commands and files call it.
        task: the task's name in `toreqprop.tasks`.
        title: what the report calls it.
        network: a model of `toreqprop.models.MODELS`, with ``options`` of its constructor.
        layers: hidden layers of the network, 1 for a looped one.
        twin: hidden layers of the feed-forward network with as many parameters.
        hidden, epochs, batch_size: of every arm.
        beta, tol: EP's nudge and tolerance that a search begins with.
        accuracy: least mean accuracy of EP and of the stronger baseline, in percent: to be as good
            as a weak baseline would prove nothing.
        margin: points within which EP shall be equivalent to the stronger baseline.
        policy_return, below_expert: least return of a cloned policy, absolute or below the
            expert's.
        all_images: train on all images of a task that has more than are drawn.
        seeds: how many `toreqprop benchmark --full` uses.
        quick: whether `toreqprop benchmark` runs it.
        counts: whether it counts for the mean gap (a task counts once).
        splits: validation splits a trial of the search is scored on.
        search_epochs: epochs of a trial, where those of the row are too many for a search.
    """

    name: str
    task: str
    title: str
    accuracy: float
    margin: float = 1.0
    network: str = "looped"
    options: tuple[tuple[str, Any], ...] = ()
    layers: int = 1
    twin: int = 2
    hidden: int = 128
    epochs: int = 20
    batch_size: int = 64
    beta: float = 1e-3
    tol: float = 1e-4
    policy_return: float | None = None
    below_expert: float | None = None
    all_images: bool = False
    seeds: int = 20
    quick: bool = True
    counts: bool = True
    splits: int = 3
    search_epochs: int | None = None

    @property
    def depth_is_twin(self) -> bool:
        """Whether the network with as many parameters is also the one of the same depth."""
        return self.layers == self.twin


RECURRENT = (("bound", "tight"), ("radius", 0.95), ("max_steps", 300))
"""What makes a network recur: its norm is kept within 3 % of the radius, not far below it. All that
matters is said here or searched, so that a new default of the library changes no row."""

ROWS: tuple[Row, ...] = (
    Row("digits", "digits", "Digits 8x8", 95.0, options=RECURRENT, epochs=30, splits=4),
    Row(
        "mnist", "mnist", "MNIST (5k)", 92.5,
        margin=0.5, options=RECURRENT, epochs=12, seeds=10, splits=2,
    ),
    Row(
        "fashion", "fashion", "Fashion-MNIST (5k)", 82.0,
        margin=0.5, options=RECURRENT, epochs=12, seeds=10, splits=2,
    ),
    Row(
        "cartpole", "cartpole", "CartPole-BC", 99.0,
        margin=0.5, options=RECURRENT, hidden=64, batch_size=128, policy_return=475.0, splits=2,
    ),
    Row(
        "acrobot", "acrobot", "Acrobot-BC", 97.5,
        options=RECURRENT, hidden=64, batch_size=128, below_expert=10.0, splits=2,
    ),
    Row(
        "mnist-layered", "mnist", "MNIST (5k), layered", 92.5,
        network="hopfield", options=(*RECURRENT, ("feedback", 0.3)),
        layers=2, twin=2, epochs=12, seeds=10, counts=False, splits=1, search_epochs=6,
    ),
    Row(
        "mnist-full", "mnist", "MNIST (60k)", 97.0,
        margin=0.3, options=RECURRENT, hidden=256, epochs=8, batch_size=128,
        all_images=True, seeds=5, quick=False, counts=False, splits=1, search_epochs=2,
    ),
    Row(
        "fashion-full", "fashion", "Fashion-MNIST (60k)", 87.0,
        margin=0.3, options=RECURRENT, hidden=256, epochs=8, batch_size=128,
        all_images=True, seeds=5, quick=False, counts=False, splits=2,
    ),
)  # fmt: skip


def row(name: str, full: bool = False) -> Row:
    """The row of that name; with ``full``, the one of the same task with all images.

    Raises:
        InvalidInputError: there is none; the message lists the known names.
    """
    wanted = f"{name}-full" if full and not name.endswith("-full") else name
    for known in ROWS:
        if known.name == wanted:
            return known
    names = ", ".join(known.name for known in ROWS)
    raise InvalidInputError(f"There is no row {wanted!r}; rows: {names}.")


def task_of(name: str) -> Task:
    """The task a row is about."""
    return get(row(name).task)
