"""What a user may give by mistake, and what becomes of it."""

from __future__ import annotations

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


def unrefused(
    call: Callable[..., Any], good: Callable[[], dict[str, Any]], functions: Collection[str] = ()
) -> list[str]:
    """Every argument replaced by every piece of nonsense: what ends in anything but success or one
    sentence of this library. What the arguments that are ``functions`` raise is theirs."""
    call(**good())
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
    return wrong
