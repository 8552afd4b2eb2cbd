"""The tasks by name: one line each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from toreqprop.checks import shown
from toreqprop.errors import InvalidInputError
from toreqprop.tasks import acrobot, cartpole, cifar10, digits, fashion, mnist
from toreqprop.tasks.control import Policy
from toreqprop.tasks.dataset import Dataset
from toreqprop.tasks.images import file_names


@dataclass(frozen=True)
class Task:
    """A learning problem: `load(seed, full)` gives its data.

    `environment` and `expert` are set for control tasks: the gymnasium id to roll a clone out in,
    and the policy it was cloned from. `needs` names the data files that may have to be fetched.
    One that is not `standard` is no row of the benchmark, and its files are fetched by name alone.
    """

    name: str
    title: str
    load: Callable[[int, bool], Dataset]
    environment: str | None = None
    expert: Policy | None = None
    needs: tuple[str, ...] = ()
    standard: bool = True


_ALL = (
    Task("digits", "Digits 8x8", digits.load),
    Task("mnist", "MNIST", mnist.load, needs=file_names("mnist")),
    Task("fashion", "Fashion-MNIST", fashion.load, needs=file_names("fashion")),
    Task("cifar10", "CIFAR-10", cifar10.load, needs=file_names("cifar10"), standard=False),
    Task("cartpole", "CartPole-BC", cartpole.load, cartpole.ENVIRONMENT, cartpole.expert),
    Task("acrobot", "Acrobot-BC", acrobot.load, acrobot.ENVIRONMENT, acrobot.expert),
)

TASKS: dict[str, Task] = {task.name: task for task in _ALL}


def get(name: str) -> Task:
    """The task of that name.

    Raises:
        InvalidInputError: there is none; the message lists the known names.
    """
    if not isinstance(name, str) or name not in TASKS:
        raise InvalidInputError(
            f"No task is called {shown(name)}; known tasks: {', '.join(TASKS)}."
        )
    return TASKS[name]
