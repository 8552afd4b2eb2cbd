"""Bounds on the norm of a convolution, and the constraint that keeps it below one of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from toreqprop import checks
from toreqprop.energies.tight_ball import PROOF, convolution_products, missed, noise, top_singular

SQUARINGS = 4


def convolution_bound(kernel: Tensor) -> Tensor:
    """A proven upper bound on ``‖K ⋆ ·‖₂``: a pure, cheap and differentiable function of K.

    A convolution is a matrix W times the patches of a map, and of ``a × b`` patches at most ``ab``
    hold the same pixel, so ``‖K⋆‖ ≤ √(ab)·‖W‖₂``; the transpose gives the same with inputs and
    outputs exchanged. ``‖W‖₂²`` is at most ``tr(G^m)^(1/m)`` for ``G = WWᵀ``, here with m = 32:
    above ``‖W‖₂`` by a factor of at most ``rows^(1/64)``.
    """
    checks.weights("kernel", kernel, 4)
    if kernel.shape[0] < kernel.shape[1]:
        kernel = kernel.transpose(0, 1)
    matrix = kernel.flatten(1)
    gram = matrix @ matrix.mT
    log_norm, power = gram.new_zeros(()), 1
    tiny = torch.finfo(gram.dtype).tiny
    for squaring in range(SQUARINGS + 1):
        # Normalising first keeps the powers within the range of float32.
        size = torch.linalg.matrix_norm(gram).clamp_min(tiny)
        log_norm = log_norm + size.log() / power
        if squaring < SQUARINGS:
            gram = gram / size
            gram, power = gram @ gram, 2 * power
    patch = kernel.shape[-2] * kernel.shape[-1]
    return patch**0.5 * (0.5 * log_norm).exp()


@torch.no_grad()
def convolution_norm(kernel: Tensor, height: int, width: int) -> float:
    """An upper bound on ``‖K ⋆ ·‖₂`` over zero-padded maps of this size, within a percent of it.

    The smaller of two. A zero-padded convolution is part of a periodic one on a torus so large that
    nothing wraps around, whose norm is the largest over its frequencies of the norm of the
    transformed kernel: certain, but above the norm where the maps are small. And what Golub-Kahan
    from a random start finds, raised by what it may have missed (`missed`): wrong with a
    probability of `DOUBT`.
    """
    checks.weights("kernel", kernel, 4)
    checks.whole_number("height", height, 1)
    checks.whole_number("width", width, 1)
    exact = kernel.double()
    size = (height + kernel.shape[-2] - 1, width + kernel.shape[-1] - 1)
    spectrum = torch.fft.rfft2(exact, s=size).movedim((0, 1), (2, 3))
    torus = float(torch.linalg.matrix_norm(spectrum, ord=2).max())
    inputs = kernel.shape[1] * height * width
    start = noise(0, (kernel.shape[1], height, width)).to(exact)
    forward, backward = convolution_products(exact)
    value, _, _ = top_singular(forward, backward, start, PROOF)
    return min(torus, float(value) * missed(inputs, PROOF))


class ConvolutionBall(nn.Module):
    """``K ↦ K · min(1, radius / ν(K))`` with ``ν`` of `convolution_bound`: ``‖K⋆‖ ≤ radius``."""

    def __init__(self, radius: float) -> None:
        super().__init__()
        self.radius = checks.number("radius", radius, 0, above=True, typical="0.1 to 0.95")

    def forward(self, kernel: Tensor) -> Tensor:
        return kernel / (convolution_bound(kernel) / self.radius).clamp_min(1.0)

    def right_inverse(self, kernel: Tensor) -> Tensor:
        return kernel

    def extra_repr(self) -> str:
        return f"radius={self.radius}"
