"""The phases of equilibrium propagation in terms of a kernel's operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from toreqprop.kernels.base import Kernel, Limits, Pair, Relaxed
from toreqprop.solution import Solution, Status

Report = Callable[[str, Solution], None]


class Contrast(NamedTuple):
    """Two equilibria and how much each sample's difference counts, shape (batch,)."""

    up: Tensor
    down: Tensor
    weight: Tensor


class Updates(NamedTuple):
    """Gradients of x, W_in, b and W_rec; None where not asked for."""

    x: Tensor | None
    weight_in: Tensor | None
    bias: Tensor | None
    weight_rec: Tensor | None


def free_phase(
    kernel: Kernel,
    weight: Tensor,
    drive: Tensor,
    limits: Limits,
    *,
    keep: bool = True,
    record: list[Tensor] | None = None,
) -> Relaxed:
    """The free equilibrium, relaxed from ``tanh(drive)``; see `kernels.reference.free_phase`."""
    return kernel.relax(weight, drive, None, None, limits, keep=keep, record=record)


def nudged_phases(
    kernel: Kernel,
    weight: Tensor,
    drive: Tensor,
    free: tuple[Tensor, Tensor, Tensor],
    cotangent: Tensor,
    betas: tuple[float, float],
    limits: Limits,
    report: Report,
    *,
    record: list[tuple[Tensor, Tensor]] | None = None,
) -> Contrast:
    """The equilibria at both β, and the weights of their contrast.

    ``free`` is the free phase's (image, state, product). β is (β, −β), or (β, 0): then the second
    equilibrium is the free one.
    """
    image, state, product = free
    beta, opposite = betas
    direction, rms = kernel.normalise(cotangent)
    if opposite == 0:
        nudged = kernel.relax(
            weight, torch.sub(drive, direction, alpha=beta), state, product, limits,
            origin=image, keep=False,
        )  # fmt: skip
        report("nudged", as_solution(nudged))
        return Contrast(nudged.image, image, rms.mul_(1 / beta))
    pair = kernel.relax_pair(weight, drive, direction, beta, state, product, limits, record=record)
    for nudged_state in (pair.up, pair.down):
        report("nudged", _solution(nudged_state, pair))
    return Contrast(pair.up, pair.down, rms.mul_(0.5 / beta))


def hebbian_updates(
    kernel: Kernel,
    contrast: Contrast,
    x: Tensor,
    weight_in: Tensor,
    wants: tuple[bool, ...],
) -> Updates:
    """Outer products of the activities at the two ends of each weight.

    ``w(h₊h₊ᵀ − h₋h₋ᵀ)/2`` is the symmetric part of ``wΔh̄ᵀ``: one product, and the difference is
    formed before it, where float32 still resolves it. W_rec is symmetric, so only that part of
    its gradient counts; taking it is left to the parametrization, which does so anyway.
    """
    delta, mean, bias = kernel.contrast(*contrast)
    return Updates(
        delta @ weight_in if wants[0] else None,
        delta.mT @ x if wants[1] else None,
        bias if wants[2] else None,
        delta.mT @ mean if wants[3] else None,
    )


def as_solution(relaxed: Relaxed) -> Solution:
    """What hooks and failure reports read."""
    return _solution(relaxed.image, relaxed)


def _solution(state: Tensor, found: Relaxed | Pair) -> Solution:
    if found.converged:
        status = Status.CONVERGED
    else:
        status = Status.MAX_STEPS if found.finite else Status.DIVERGED
    return Solution((state,), found.steps, found.residual, status, found.error_bound, found.scale)
