"""The norm of a convolution from a few products with a block of maps.

Two maps at once cost little more than one, and directions that lie close to the
largest are found together: five products with two maps find nearly
what twelve with one do.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

MAPS, ROUNDS = 2, 5
"""Maps at once, and products with each: `tests/test_tight_ball.py` and `toreqprop norms` hold the
result against exact norms."""


def gram_of(kernel: Tensor, groups: int = 1) -> Callable[[Tensor], Tensor]:
    """``x ↦ KᵀK x`` for zero-padded maps (block, channels, height, width), all channels of a pixel
    next to each other in memory."""
    reach = (kernel.shape[-2] - 1, kernel.shape[-1] - 1)
    there = kernel.contiguous(memory_format=torch.channels_last)
    back = kernel.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1).flip(2, 3)
    back = back.contiguous(memory_format=torch.channels_last)

    def product(maps: Tensor) -> Tensor:
        fine = F.conv2d(maps, there, None, 1, reach, 1, groups)
        return F.conv2d(fine, back, None, 1, 0, 1, groups)

    return product


def top_of_gram(
    product: Callable[[Tensor], Tensor], start: Tensor, rounds: int
) -> tuple[Tensor, Tensor]:
    """The largest eigenvalue of a positive map, from below, and the best vectors, as many as
    ``start`` has, the largest first: Rayleigh-Ritz in the block Krylov space of ``start``.

    NaN, and zeros, where the map is not finite.
    """
    maps = start.movedim(1, -1)
    count, whole = len(start), maps[0].numel()
    basis = start.new_empty(0, whole)
    images = start.new_empty(0, whole)
    work = maps.reshape(count, whole)
    for _ in range(rounds):
        # All in one factorisation: orthogonal to rounding, also where some are dependent.
        fresh = torch.linalg.qr(torch.cat([basis, work]).mT).Q.mT[len(basis) :].contiguous()
        if len(fresh) == 0:  # the space is complete
            break
        basis = torch.cat([basis, fresh])
        image = product(fresh.reshape(-1, *maps.shape[1:]).movedim(-1, 1))
        work = image.movedim(1, -1).reshape(len(fresh), whole)
        images = torch.cat([images, work])
    inner = (basis @ images.mT).double()
    if not bool(torch.isfinite(inner).all()):
        return torch.full_like(inner[0, 0], torch.nan).to(start), torch.zeros_like(start)
    values, vectors = torch.linalg.eigh(0.5 * (inner + inner.mT))
    best = start.new_zeros(count, whole)
    best[: len(basis)] = vectors[:, -count:].flip(1).to(start).mT @ basis
    tiny = torch.finfo(start.dtype).tiny
    return values[-1].to(start).clamp_min(tiny), best.reshape(maps.shape).movedim(-1, 1)
