"""A fault in the library's own behaviour, put in and taken out again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from inspect import getattr_static
from typing import Any
from unittest.mock import patch

Plant = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Mutation:
    """One fault: where it is, what it does, and the track that has to see it.

    ``plant`` returns a context within which the library has the fault; it is told nothing of the
    track, and the track nothing of it.
    """

    name: str
    area: str
    does: str
    track: int
    plant: Plant


def swapped(owner: Any, name: str, change: Callable[[Any], Any]) -> Plant:
    """Within the context, ``owner.name`` is ``change(what it was)``."""

    def plant() -> AbstractContextManager[Any]:
        kept = getattr_static(owner, name)
        return patch.object(owner, name, change(kept))

    return plant


def together(*plants: Plant) -> Plant:
    """All of them at once."""

    def plant() -> AbstractContextManager[Any]:
        stack = ExitStack()
        for each in plants:
            stack.enter_context(each())
        return stack

    return plant
