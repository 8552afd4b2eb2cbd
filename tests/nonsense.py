"""What a user may give by mistake, and what becomes of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import torch

from toreqprop.errors import TorEqPropError

NONSENSE: dict[str, Any] = {
    "None": None,
    "text": "nonsense",
    "empty text": "",
    "negative": -1,
    "zero": 0,
    "fraction": 2.5,
    "nan": float("nan"),
    "infinite": float("inf"),
    "true": True,
    "empty list": [],
    "list": [1, "a", None],
    "empty dict": {},
    "dict": {"a": 1},
    "object": object(),
    "function": lambda *arguments: None,
    "class": int,
    "vector": torch.zeros(3),
    "scalar": torch.tensor(1.0),
    "no samples": torch.zeros(0, 6),
    "array": np.zeros((2, 2)),
}


MEANT = {
    "None": {"None"},
    "str": {"text", "empty text"},
    "int": {"negative", "zero"},
    "float": {"negative", "zero", "fraction"},
    "complex": set(),
    "bool": {"true"},
    "Tensor": {"vector", "scalar", "no samples"},
    "Callable": {"function", "class"},
    "Hook": {"function", "class"},
    "list": {"empty list", "list"},
    "Mapping": {"empty dict"},
    "dict": {"empty dict", "dict"},
    "Folder": {"text"},
    "Path": {"text"},
    **{
        name: {"empty list"} for name in ("tuple", "Sequence", "State", "Params", "Layers", "Wants")
    },
}
"""What of it an annotation asks for."""


def meant(annotation: str) -> set[str]:
    """The pieces of nonsense that are none where an argument is annotated so."""
    if not isinstance(annotation, str) or annotation == "Any":
        return set(NONSENSE)
    parts = [part.split("[")[0].strip() for part in annotation.split(" | ")]
    return set().union(*(MEANT.get(part, set()) for part in parts))


def meanings(call: Callable[..., Any]) -> Callable[[str], set[str]]:
    """For each argument of a call what `meant` says of its annotation."""
    parameters = inspect.signature(call).parameters
    return lambda argument: meant(parameters[argument].annotation)


def unrefused(
    call: Callable[..., Any],
    good: Callable[[], dict[str, Any]],
    functions: Collection[str] = (),
    meaning: Callable[[str], set[str]] | None = None,
) -> list[str]:
    """Every argument replaced by every piece of nonsense: what ends in anything but one sentence of
    this library, or in success where it is ``meaning`` something, by its annotation if not given.
    What the arguments that are ``functions`` raise is theirs."""
    call(**good())
    meaning = meanings(call) if meaning is None else meaning
    wrong = []
    for argument in good():
        for kind, value in NONSENSE.items():
            if kind == "class" and argument in functions:
                continue
            try:
                call(**good() | {argument: value})
            except TorEqPropError as error:
                if "\n" in str(error):
                    wrong.append(f"{argument} = {kind}: several lines, {error}")
            except Exception as error:
                text = " ".join(str(error).split())[:90]
                wrong.append(f"{argument} = {kind}: {type(error).__name__} {text}")
            else:
                if kind not in meaning(argument):
                    wrong.append(f"{argument} = {kind}: accepted")
    return wrong
