"""The norm of a convolution from a few products with a block of maps.

Three maps at once cost little more than one, and directions that lie close to the largest are found
together. What takes many products is another direction that overtakes these: of it a start has
nothing but noise, one part in the root of all pixels. After five products with two maps, kernels
that learnt fast were seen with a norm 4 % above what was found. After six it shows: the last
product then raises the value, and more of them follow until one does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.kernels import compiled_available
from toreqprop.kernels.pairs import rows_times
from toreqprop.tracing import is_plain

MAPS, ROUNDS, CLIMB = 3, 6, 1e-3
"""Maps at once, products with each at least, and by what share the last of them may still have
raised the square of the norm: `tests/test_tight_ball.py` and `toreqprop norms` hold the
result against exact norms."""


def gram_of(
    kernel: Tensor, groups: int = 1, size: tuple[int, int] = (1, 1)
) -> Callable[[Tensor], Tensor]:
    """``x ↦ KᵀK x`` for zero-padded maps (block, channels, height, width) of about this size, all
    channels of a pixel next to each other in memory."""
    high, wide = kernel.shape[-2:]
    reach = (high - 1, wide - 1)
    pixels, fine = size[0] * size[1], (size[0] + high - 1) * (size[1] + wide - 1)
    whole = (2 * high - 1) * (2 * wide - 1) * kernel.shape[1] * pixels
    if groups == 1 and whole < kernel[:, 0].numel() * (pixels + fine):
        both = _autocorrelation(kernel)
        return lambda maps: F.conv2d(maps, both, None, 1, reach)
    there = kernel.contiguous(memory_format=torch.channels_last)
    back = kernel.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1).flip(2, 3)
    back = back.contiguous(memory_format=torch.channels_last)

    def product(maps: Tensor) -> Tensor:
        fine = F.conv2d(maps, there, None, 1, reach, 1, groups)
        return F.conv2d(fine, back, None, 1, 0, 1, groups)

    return product


def _autocorrelation(kernel: Tensor) -> Tensor:
    """The kernel of ``KᵀK``: as padding loses nothing of a map, it is a convolution too, with
    ``Σ_τ K[τ]ᵀ·K[τ + δ]`` at each distance δ."""
    below, high, wide = kernel.shape[1:]
    flat = kernel.permute(0, 2, 3, 1).flatten(1)
    turned = flat.mT.contiguous()
    every = rows_times(turned, flat, rising=False)
    if every is None:
        every = turned @ flat
    every = every.reshape(high, wide, below, high, wide, below)
    found = kernel.new_zeros(below, 2 * high - 1, 2 * wide - 1, below)
    if compiled_available() and is_plain(every):
        from toreqprop.kernels.lanczos import by_distance

        by_distance(every.numpy(), found.numpy())
        return found.permute(0, 3, 1, 2)
    for y in range(high):
        rows = found[:, high - 1 - y : 2 * high - 1 - y]
        for x in range(wide):
            rows[:, :, wide - 1 - x : 2 * wide - 1 - x] += every[y, x]
    return found.permute(0, 3, 1, 2)


def top_of_gram(
    product: Callable[[Tensor], Tensor], start: Tensor, rounds: int, most: int = 0
) -> tuple[Tensor, Tensor]:
    """The largest eigenvalue of a positive map, from below, and the best vectors, as many as
    ``start`` has, the largest first: Rayleigh-Ritz in the block Krylov space of ``start``.

    After ``rounds`` products, or up to ``most`` of them until the last one no longer raised the
    value by more than `CLIMB`. NaN, and zeros, where the map is not finite.
    """
    maps = start.movedim(1, -1)
    count, whole = len(start), maps[0].numel()
    room = min(max(rounds, most) * count, whole)
    basis, work, before = start.new_empty(room, whole), maps.reshape(count, whole), 0.0
    inner = torch.zeros(room, room, dtype=torch.float64, device=start.device)
    for number, known in enumerate(range(0, room, count), start=1):
        end = min(known + count, room)
        _extend(basis, known, work[: end - known])
        image = product(basis[known:end].reshape(-1, *maps.shape[1:]).movedim(-1, 1))
        work = image.movedim(1, -1).reshape(-1, whole)
        _meet(basis, known, work, inner)
        if end < room and number < rounds - (most > 0):
            continue
        small = inner[:end, :end]
        if not math.isfinite(float(small.sum())):
            return torch.full_like(small[0, 0], torch.nan).to(start), torch.zeros_like(start)
        values, vectors = torch.linalg.eigh(small)
        value = float(values[-1])
        if number >= rounds and value - before <= (CLIMB if most else math.inf) * value:
            break
        before = value
    best = start.new_zeros(count, whole)
    best[: len(vectors)] = vectors[:, -count:].flip(1).to(start).mT @ basis[: len(vectors)]
    tiny = torch.finfo(start.dtype).tiny
    return values[-1].to(start).clamp_min(tiny), best.reshape(maps.shape).movedim(-1, 1)


def _meet(basis: Tensor, known: int, images: Tensor, inner: Tensor) -> None:
    """Put the products of ``basis`` with the images of what is new in it into ``inner``."""
    end = known + len(images)
    if compiled_available() and is_plain(basis) and is_plain(images):
        from toreqprop.kernels.lanczos import meet

        meet(basis.numpy(), known, images.numpy(), inner.numpy())
        return
    both = (basis[:end] @ images.mT).double()
    inner[:end, known:end], inner[known:end, :known] = both, both[:known].mT
    corner = inner[known:end, known:end]
    corner.copy_(0.5 * (corner + corner.mT))


def _extend(basis: Tensor, known: int, rows: Tensor) -> None:
    """Put rows behind ``basis[:known]``, made orthonormal with them and each other."""
    if compiled_available() and is_plain(basis) and is_plain(rows):
        from toreqprop.kernels.lanczos import extend

        extend(basis.numpy(), known, rows.numpy())
        return
    # All in one factorisation: orthogonal to rounding, also where some are dependent.
    every = torch.linalg.qr(torch.cat([basis[:known], rows]).mT).Q.mT
    basis[known : known + len(rows)] = every[known:]
