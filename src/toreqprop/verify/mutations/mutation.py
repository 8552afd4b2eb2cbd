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


def swapped(owner: Any, name: str, change: Callable[[Any], Any], *, in_step: bool = False) -> Plant:
    """Within the context, ``owner.name`` is ``change(what it was)``.

    Everything then takes the general path, whose parts these are, unless the fault is ``in_step``:
    in the compiled step, which would pass most of them by.
    """

    def plant() -> AbstractContextManager[Any]:
        from toreqprop.models import base

        stack = ExitStack()
        stack.enter_context(patch.object(owner, name, change(getattr_static(owner, name))))
        if not in_step:
            stack.enter_context(patch.object(base, "compiled_step", lambda *given: None))
        return stack

    return plant


def together(*plants: Plant) -> Plant:
    """All of them at once."""

    def plant() -> AbstractContextManager[Any]:
        stack = ExitStack()
        for each in plants:
            stack.enter_context(each())
        return stack

    return plant
