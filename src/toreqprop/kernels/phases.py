"""The phases of equilibrium propagation in terms of a kernel's operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from toreqprop.kernels.base import Kernel, Limits, Relaxed
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
    record: list[Tensor] | None = None,
) -> Contrast:
    """The equilibria at both β, and the weights of their contrast.

    ``free`` is the free phase's (image, state, product). A second β of zero is the free
    equilibrium itself; any other is relaxed from the mirror image of the first, whose product
    with W is known because a product is linear.
    """
    image, state, product = free
    first, second = betas
    direction, rms = kernel.normalise(cotangent)
    up = kernel.relax(
        weight, torch.sub(drive, direction, alpha=first), state, product, limits,
        origin=image, keep=second != 0, record=record,
    )  # fmt: skip
    report("nudged", as_solution(up))
    opposite = image
    if second != 0:
        if up.state is None or up.product is None:
            raise AssertionError("keep=True returns the last iterate")
        down = kernel.relax(
            weight, torch.sub(drive, direction, alpha=second),
            _mirror(up.state, state, second / first), _mirror(up.product, product, second / first),
            limits, scale=up.scale, keep=False, record=record,
        )  # fmt: skip
        report("nudged", as_solution(down))
        opposite = down.image
    return Contrast(up.image, opposite, rms.mul_(1 / (first - second)))


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
    if relaxed.converged:
        status = Status.CONVERGED
    else:
        status = Status.MAX_STEPS if relaxed.finite else Status.DIVERGED
    return Solution(
        (relaxed.image,),
        relaxed.steps,
        relaxed.residual,
        status,
        relaxed.error_bound,
        relaxed.scale,
    )


def _mirror(end: Tensor, center: Tensor, ratio: float) -> Tensor:
    """``center + ratio·(end − center)``: right to first order in β."""
    return torch.lerp(center, end, ratio)
