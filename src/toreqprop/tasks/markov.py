"""Text from a source that is known: each character depends on the two before it and on no more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from toreqprop import checks

CONCENTRATION = 0.25
"""Of the Dirichlet distribution that a context's shares are drawn from: small is predictable."""


@dataclass(frozen=True)
class MarkovText:
    """Two texts from one source, uint8 (characters,), and its ``table`` of
    ``p(c|ab)``, (symbols, symbols, symbols)."""

    train: np.ndarray
    test: np.ndarray
    table: np.ndarray

    @property
    def symbols(self) -> int:
        return len(self.table)

    def source_bits(self, scored: np.ndarray) -> float:
        """Mean bits that the source itself needs for these characters of the test text: nothing
        that sees what came before needs fewer, but for luck."""
        text = self.test
        shares = self.table[text[scored - 2], text[scored - 1], text[scored]]
        return float(-np.log2(shares).mean())


def markov_text(symbols: int, train: int, test: int, seed: int) -> MarkovText:
    """A source drawn by the seed, and two texts that it wrote one after the other."""
    checks.whole_number("symbols", symbols, 2, 256)
    draws = np.random.default_rng(np.random.SeedSequence((seed, 37)))
    table = draws.dirichlet(np.full(symbols, CONCENTRATION), (symbols, symbols))
    limits = table.cumsum(-1)
    limits[..., -1] = 1.0  # what rounding left out
    chances = draws.random(train + test)
    text = np.zeros(train + test, np.uint8)
    for k in range(2, len(text)):
        row = limits[text[k - 2], text[k - 1]]
        text[k] = np.searchsorted(row, chances[k], side="right")
    return MarkovText(text[:train], text[train:], table)
