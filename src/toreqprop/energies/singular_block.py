"""The largest singular value of a matrix from a few products with a block of vectors.

A block costs little more than one vector, as what takes time is reading the matrix; and several
directions that lie close to the largest are found at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK, ROUNDS, LARGE = 8, 2, 300
"""Vectors at once; pairs of products, one more for matrices larger than that: there singular values
lie closer together. `tests/test_tight_ball.py` holds the result against exact norms."""


def block_size(shape: tuple[int, ...]) -> int:
    """How many vectors a matrix of this shape is asked with."""
    return min(BLOCK, *shape)


def usual_rounds(shape: tuple[int, ...]) -> int:
    """Pairs of products from a warm start."""
    return ROUNDS + (min(shape) > LARGE)


def best_in_block(weight: Tensor, start: Tensor, rounds: int) -> tuple[Tensor, Tensor, Tensor]:
    """``‖W‖₂`` from below, its left vector, and the best right vectors, (block, columns).

    With an orthonormal basis U of the space of ``(WWᵀ)^k W·startᵀ``, k < ``rounds``, the value is
    ``‖UᵀW‖₂``: never more than the norm. The right vectors have length one, the largest first (zero
    where the matrix has no more of them). NaN, and zeros, where the matrix is not finite.
    """
    size, known = len(start), 0
    left: list[Tensor] = []
    products: list[Tensor] = []
    image = start @ weight.mT
    for number in range(rounds):
        # All columns in one factorisation: orthogonal to rounding, also where some are dependent.
        basis = torch.linalg.qr(torch.cat([*left, image]).mT).Q
        left.append(basis[:, known : known + size].mT)
        products.append(left[-1] @ weight)
        known += size
        if known >= min(weight.shape) or number + 1 == rounds:
            break
        image = products[-1] @ weight.mT
    whole = torch.cat(products)
    gram = (whole @ whole.mT).double()
    finite = torch.isfinite(gram.sum())  # no branch on it: programs are traced
    squares, vectors = torch.linalg.eigh(torch.where(finite, gram, 0.0))
    values, best = squares[-size:].flip(0).clamp_min(0).sqrt(), vectors[:, -size:].flip(1)
    shares = best.to(weight.dtype).mT
    lengths = torch.where(values > 1e-6 * values[0], values, torch.inf).to(weight.dtype)
    left_best, right = shares[0] @ torch.cat(left), shares @ whole / lengths[:, None]
    return (
        torch.where(finite, values[0], torch.nan),
        torch.where(finite, left_best, 0.0),
        torch.where(finite, right, 0.0),
    )
