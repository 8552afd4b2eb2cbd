"""What counting neighbours predicts: the entropy of held-out text under n-gram models."""

from __future__ import annotations

import math

import numpy as np

from toreqprop import checks


def ngram_bits(
    train: np.ndarray, held: np.ndarray, scored: np.ndarray, order: int, symbols: int
) -> float:
    """Mean bits that an n-gram model, ``order`` = n, needs for the characters ``scored`` of
    ``held``.

    Counts of all of ``train``; each context's shares are mixed with those of the context that is
    one character shorter, by as much as it was followed by new characters (Witten and Bell 1991):
    ``p(c|h) = (n(hc) + k(h)·p(c|h′)) / (n(h) + k(h))``, with k(h) different characters after h.
    The shortest is the uniform distribution.

    Shapes: integer symbols (characters,), ``scored`` indices of ``held``, none before n − 1.
    """
    checks.whole_number("order", order, 1)
    shares = np.full(len(scored), 1.0 / symbols)
    for length in range(1, order + 1):
        table = _counts(train, length, symbols)
        rows = _codes(held, length - 1, symbols)[scored]
        own = table[rows, held[scored]]
        total, kinds = table.sum(1)[rows], (table > 0).sum(1)[rows]
        seen = total > 0
        mixed = (own + kinds * shares) / np.where(seen, total + kinds, 1)
        shares = np.where(seen, mixed, shares)
    return float(-np.log2(shares).mean())


def uniform_bits(symbols: int) -> float:
    """Bits of a character that nothing is known of."""
    return math.log2(symbols)


def _codes(text: np.ndarray, length: int, symbols: int) -> np.ndarray:
    """At each character a number for the ``length`` ones before it; those at the beginning, which
    have fewer, wrap around and are not to be used."""
    code = np.zeros(len(text), np.int64)
    for back in range(length, 0, -1):
        code = code * symbols + np.roll(text, back).astype(np.int64)
    return code


def _counts(text: np.ndarray, length: int, symbols: int) -> np.ndarray:
    """How often each character came after each context, (symbols^(length − 1), symbols)."""
    joint = _codes(text, length - 1, symbols)[length - 1 :] * symbols + text[length - 1 :]
    return np.bincount(joint, minlength=symbols**length).reshape(-1, symbols)
