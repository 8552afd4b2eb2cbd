"""Text as symbols: whole works apart, the same for everyone; and a source whose bits are known."""

from __future__ import annotations

import numpy as np
import pytest

from toreqprop.errors import InvalidInputError
from toreqprop.tasks import files, shakespeare
from toreqprop.tasks.markov import markov_text

SHARED = 60
"""Characters that no held-out work has in common with the training text."""


def test_whole_works_are_held_out() -> None:
    names = [file.name for file in files.COLLECTIONS["shakespeare"].files]
    parts = shakespeare.divided(reversed(names))  # whatever order they come in
    assert parts == shakespeare.divided(names)
    assert sorted(name for part in parts.values() for name in part) == sorted(set(names))
    assert [len(part) for part in parts.values()] == [34, 4, 4]
    assert not any(name.endswith("_gut_f.txt") for name in names)  # no other edition of any


def test_text_is_tidied_and_comes_back() -> None:
    text = shakespeare.tidied("  Who's   there? \n\n\n\nNay, \t 7 times\n")
    assert text == "Who's there?\n\nNay, 7 times\n\n\n\n"
    symbols = shakespeare.encode(text)
    assert symbols.dtype == np.uint8
    assert shakespeare.decode(symbols) == text.replace("7", shakespeare.OTHER)
    assert len(set(shakespeare.ALPHABET)) == len(shakespeare.ALPHABET) == 69
    with pytest.raises(InvalidInputError, match="Symbols are 0 to 68"):
        shakespeare.decode([69])


def test_the_real_works_share_no_passage() -> None:
    if any(state.state != "present" for state in files.inspect("shakespeare")):
        pytest.skip("the files are not on this machine: run `toreqprop data fetch shakespeare`")
    text = shakespeare.corpus()
    assert [len(part) for part in (text.train, text.validation, text.test)] == [
        4_232_273, 421_002, 381_169,
    ]  # fmt: skip
    whole = text.train.tobytes()
    for part in (text.validation, text.test):
        for start in range(0, len(part) - SHARED, 4_001):  # by chance; all of them were looked at
            assert part[start : start + SHARED].tobytes() not in whole


def test_a_source_needs_the_bits_of_its_table() -> None:
    text = markov_text(4, 50_000, 20_000, seed=3)
    scored = np.arange(2, len(text.test))
    table = text.table
    counts = np.zeros_like(table)
    np.add.at(counts, (text.train[:-2], text.train[1:-1], text.train[2:]), 1)
    seen = counts.sum(-1) > 300
    shares = counts[seen] / counts[seen].sum(-1, keepdims=True)
    # Three deviations of a share counted 300 times are 0.087.
    np.testing.assert_allclose(shares, table[seen], atol=0.09)
    entropy = -(table * np.log2(np.where(table > 0, table, 1))).sum(-1)
    weights = counts.sum(-1) / counts.sum()
    assert text.source_bits(scored) == pytest.approx(float((weights * entropy).sum()), abs=0.05)
    again = markov_text(4, 50_000, 20_000, seed=3)
    assert np.array_equal(text.test, again.test)
    assert not np.array_equal(text.test, markov_text(4, 50_000, 20_000, seed=4).test)
