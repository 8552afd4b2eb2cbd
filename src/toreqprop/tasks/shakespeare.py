"""Shakespeare's plays and poems as symbols: training, validation and test text by whole works."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from string import ascii_letters

import numpy as np

from toreqprop.errors import InvalidInputError
from toreqprop.tasks.files import COLLECTIONS, load_contents

TASK = "shakespeare"
OTHER = "*"
ALPHABET = "".join(sorted("\n !\"&'(),-.:;?[]" + OTHER + ascii_letters))
"""What a symbol stands for. Digits and what is rarer still, 480 characters of five million, are all
`OTHER`."""

_TABLE = np.full(129, ALPHABET.index(OTHER), np.uint8)
_TABLE[[ord(character) for character in ALPHABET]] = np.arange(len(ALPHABET))
"""The symbol of each character of ASCII, and at the end that of any other."""

PERIOD, VALIDATION, TEST = 10, 3, 7
"""Of the works in the order of their files' names, number 3 of every ten is for validation and
number 7 for testing."""


@dataclass(frozen=True)
class Corpus:
    """Symbols (characters,), uint8, of the works of each part, one work after the other."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    works: Mapping[str, tuple[str, ...]]
    checksums: Mapping[str, str]


def corpus() -> Corpus:
    """The text, the same for everyone: no work is in two parts.

    Raises:
        DataUnavailableError: the files are not here and cannot be fetched.
    """
    contents = load_contents(TASK)
    works = divided(contents)
    parts = {
        part: np.concatenate([encode(tidied(contents[name].decode("ascii"))) for name in names])
        for part, names in works.items()
    }
    sums = {file.name: file.sha256 for file in COLLECTIONS[TASK].files}
    return Corpus(**parts, works=works, checksums=sums)


def divided(names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Which works are in which part."""
    order = sorted(names)
    held = {
        part: tuple(order[first::PERIOD])
        for part, first in (("validation", VALIDATION), ("test", TEST))
    }
    rest = set(order).difference(*held.values())
    return {"train": tuple(name for name in order if name in rest), **held}


def tidied(text: str) -> str:
    """One space between words, none at the ends of a line, at most one empty line; three empty
    ones at the end set works apart."""
    lines = [" ".join(line.split()) for line in text.strip().splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n\n\n\n"


def encode(text: str) -> np.ndarray:
    """Symbols (characters,), uint8."""
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    return _TABLE[np.minimum(points, len(_TABLE) - 1)]


def decode(symbols: Iterable[int]) -> str:
    """The text of symbols.

    Raises:
        InvalidInputError: one of them is none.
    """
    found = [int(symbol) for symbol in symbols]
    if found and not 0 <= min(found) <= max(found) < len(ALPHABET):
        raise InvalidInputError(f"Symbols are 0 to {len(ALPHABET) - 1}, got {found}.")
    return "".join(ALPHABET[symbol] for symbol in found)
