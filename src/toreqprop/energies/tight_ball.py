"""A spectral norm kept just below its radius: estimated at every step, proven when asked."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop import checks
from toreqprop.energies.bounded import COLD, FRESH, PROOF_EVERY, bounded, serves
from toreqprop.energies.gram_block import MAPS, ROUNDS, gram_of, top_of_gram
from toreqprop.energies.singular_block import (
    best_in_block,
    block_size,
    usual_rounds,
)
from toreqprop.errors import ConvergenceWarning
from toreqprop.kernels import compiled_available
from toreqprop.tracing import has_memory, last_backward

Bound = Literal["tight", "proven", "exact"]
"""How a norm is kept below its radius: `TightBall`, or `SpectralBall` with a proven or the exact
norm."""

SYMMETRIC_STEPS = 16
"""Products of Lanczos. Other matrices: see `singular_block`; convolutions: see `gram_block`."""

MARGIN = 1.03
"""What the estimate is multiplied with, as it comes from below: `tests/test_tight_ball.py` holds
the result against the norm, at first and at every step of trainings."""

PROOF, DOUBT = 100, 1e-9
"""Pairs of products in the proof for a convolution, and the probability that it is wrong."""

PROOFS = PROOF, 2 * PROOF, 4 * PROOF
"""With them a norm is known to 0.8, 0.2 and 0.05 % (of maps with 8,192 numbers)."""


class TightBall(nn.Module):
    """``W ↦ W · min(1, radius/(margin·ν))`` with an estimate ``ν`` of ``‖W‖₂``.

    ν is the largest singular value in a small Krylov space that starts from what was found at the
    last training step (``start``, a buffer: one vector of a symmetric matrix, a block of them else)
    and some fresh noise. It is not proven: every
    `PROOF_EVERY` training steps, and whenever `proven` is asked, the result is; where that fails
    the margin is raised for good and a warning says so. The forward pass changes nothing: buffers
    move in the backward pass, so that evaluation, copies and processes see the same weight.

    Args:
        radius: what ``‖W‖₂`` stays below.
        shape: of the weight, (rows, columns).
        symmetric: take ``½(W + Wᵀ)`` first.
        compiled: use Numba where it is installed; the two agree to rounding.
    """

    start: Tensor
    margin: Tensor
    steps: Tensor

    def __init__(
        self,
        radius: float,
        shape: tuple[int, ...],
        *,
        symmetric: bool = False,
        compiled: bool = True,
    ) -> None:
        super().__init__()
        self.radius = checks.number("radius", radius, 0, above=True, typical="0.1 to 0.95")
        self.shape = checks.sizes("shape", shape, 2, "(128, 64)", most=2)
        checks.flag("symmetric", symmetric)
        checks.flag("compiled", compiled)
        self.symmetric = symmetric
        self.compiled = compiled and compiled_available()
        self.blocks = block_size(self.shape), usual_rounds(self.shape)
        if symmetric:
            self.blocks = 1, SYMMETRIC_STEPS
        vectors = self.shape[1:] if symmetric else (self.blocks[0], self.shape[1])
        self.register_buffer("start", noise(0, vectors))
        self.register_buffer("margin", torch.tensor(MARGIN))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, weight: Tensor) -> Tensor:
        if serves((self,), (weight,)):
            return bounded((self,), (weight,))[0]
        if self.symmetric:
            weight = 0.5 * (weight + weight.mT)
        unit, peak = _in_units(weight)
        with torch.no_grad():
            _, left, right = self.estimate(unit)
        first = right if self.symmetric else right[0]
        return scaled(self, weight, unit, peak, left @ unit @ first, right)

    def estimate(self, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """ν, its left vector, and what the next estimate starts from, its right vector first."""
        first = self.start.to(weight.dtype)

        def found(products: int) -> tuple[Tensor, Tensor, Tensor]:
            if not self.symmetric:
                return best_in_block(weight, first, products)
            return top_singular(lambda v: weight @ v, lambda u: u @ weight, first, products // 2)

        return self._at_hand(found)

    def _at_hand(
        self, found: Callable[[int], tuple[Tensor, Tensor, Tensor]]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What ``found`` makes of as many products as are due, which a traced program cannot know:
        it makes both."""
        if not torch.compiler.is_compiling():
            return found(self.products())
        warm, cold = found(self.usual), found(COLD * self.usual)
        value, left, right = (
            torch.where(self.steps > 0, a, b) for a, b in zip(warm, cold, strict=True)
        )
        return value, left, right

    @property
    def usual(self) -> int:
        """Products, or pairs of them, of an estimate that starts from the last one."""
        return SYMMETRIC_STEPS if self.symmetric else usual_rounds(self.shape)

    def products(self) -> int:
        """How many products, or pairs of them, the next estimate takes."""
        return self.usual if int(self.steps) else COLD * self.usual

    def advance(self, right: Tensor, weight: Tensor) -> None:
        """After a backward pass: where the next estimate starts, and now and then a proof."""
        with torch.no_grad():
            number = int(self.steps.add_(1))
            length = right.numel() if right.dim() == 1 else right[0].numel()
            if self.compiled and self.start.is_cpu and self.start.dtype == right.dtype:
                from toreqprop.kernels.lanczos import next_start

                scale = FRESH * (3 / length) ** 0.5
                next_start(right.numpy(), number, scale, self.start.numpy())
            else:
                other = noise(number, right.shape).to(right)
                self.start.copy_(right + (FRESH / length**0.5) * other)
            self.prove(weight)

    @torch.no_grad()
    def prove(self, weight: Tensor) -> None:
        """Every so many training steps: whether the norm is below the radius; else the margin is
        raised, with a warning."""
        number = int(self.steps)
        if number % PROOF_EVERY == 0 and not self.proven(weight):
            self.margin *= 1.02
            warnings.warn(
                f"The spectral norm was above its radius {self.radius:g} after {number} steps: "
                f"the margin is now {float(self.margin):.3f}. For a proof at every step use "
                'bound="proven" or bound="exact".',
                ConvergenceWarning,
                stacklevel=2,
            )

    def proven(self, weight: Tensor) -> bool:
        """Whether ``‖weight‖₂ ≤ radius`` for certain, of a weight this ball has returned."""
        return norm_is_below(weight, self.radius * (1 + 1e-6), self.symmetric)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name, value in self.named_buffers():
            state_dict.setdefault(prefix + name, value)  # version 0.1 had none
        start = state_dict[prefix + "start"]
        if self.start.dim() > 1 and start.shape == self.start.shape[1:]:
            start = start[None]  # one vector or map, as before there were blocks of them
        if self.start.dim() > 1 and start.shape[1:] == self.start.shape[1:]:
            # Fewer maps, as blocks once had.
            rest = self.start[len(start) :].to(start)
            state_dict[prefix + "start"] = torch.cat([start, rest])
        super()._load_from_state_dict(state_dict, prefix, *args)

    def extra_repr(self) -> str:
        return f"radius={self.radius}, symmetric={self.symmetric}"


class TightConvolutionBall(TightBall):
    """`TightBall` for a kernel: ν of the convolution over zero-padded maps of one size.

    ``shape`` is that of the kernel, ``size`` the height and width of the maps it sees.
    """

    def __init__(
        self, radius: float, shape: tuple[int, ...], size: tuple[int, int], *, groups: int = 1
    ) -> None:
        super().__init__(radius, (1, 1), compiled=False)
        self.shape = checks.sizes("shape", shape, 4, "(8, 3, 5, 5)", most=4)
        self.groups = checks.whole_number("groups", groups, 1)
        maps = checks.sizes("size", size, 2, "(28, 28)", most=2)
        self.start = noise(0, (MAPS, self.shape[1] * self.groups, *maps))

    def forward(self, weight: Tensor) -> Tensor:
        if has_memory(weight) and not torch.compiler.is_compiling():
            return _ScaledKernel.apply(weight, self)
        unit, peak = _in_units(weight)
        with torch.no_grad():
            _, left, right = self.estimate(unit)
        value = (left * convolution_products(unit, self.groups)[0](right)).sum()
        return scaled(self, weight, unit, peak, value, right)

    def estimate(self, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """From the first map alone, by Golub-Kahan, which a program may be traced through."""
        both, first = convolution_products(weight, self.groups), self.start[0].to(weight)
        return self._at_hand(lambda rounds: top_singular(*both, first, MAPS * rounds))

    def quickly(self, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """ν, its left vector, and the right ones, the best first; see `gram_block`."""
        first = self.start.to(weight)
        most = COLD * self.usual
        product = gram_of(weight, self.groups, (first.shape[2], first.shape[3]))
        value, right = top_of_gram(product, first, self.products(), most)
        left = convolution_products(weight, self.groups)[0](right[0])
        length = torch.linalg.vector_norm(left)
        return value.sqrt(), left / length.clamp_min(_tiny(left)), right

    @property
    def usual(self) -> int:
        return ROUNDS

    def proven(self, weight: Tensor) -> bool:
        """As certain as 1 − `DOUBT`: by Golub-Kahan from a random start, see `missed`.

        What was found is below the norm, and with what may have been missed above it: where the
        radius lies between the two, the next of `PROOFS` brings them closer together.
        """
        exact = weight.detach().double()
        start = noise(int(self.steps), self.start[0].shape).to(exact)
        both, limit = convolution_products(exact, self.groups), self.radius * (1 + 1e-6)
        for pairs in PROOFS:
            with torch.no_grad():
                least = float(top_singular(*both, start, pairs)[0])
            most = least * missed(start.numel(), pairs)
            if not least <= limit < most:
                return most <= limit
        return False


def scaled(
    ball: TightBall, weight: Tensor, unit: Tensor, peak: Tensor, value: Tensor, right: Tensor
) -> Tensor:
    """The weight inside the ball, by autograd; ``value`` is ν in units of the largest entry."""
    size = value * ball.margin.to(value.dtype)
    inside = peak.double() * size.detach().double() <= ball.radius
    result = torch.where(inside, weight, unit * (ball.radius / size.clamp_min(_tiny(weight))))
    if result.requires_grad and has_memory(weight) and not torch.compiler.is_compiling():
        kept = result.detach()
        result.register_hook(lambda gradient: ball.advance(right, kept))
    return result


def top_singular(
    forward: Callable[[Tensor], Tensor],
    backward: Callable[[Tensor], Tensor],
    start: Tensor,
    steps: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The largest singular value of a linear map and its vectors, by Golub-Kahan from ``start``.

    ``backward`` is the transposed map; vectors may have any shape.
    """
    tiny = _tiny(start)
    before: list[Tensor] = []
    after: list[Tensor] = []
    work = start
    rows, columns = [], []
    for _ in range(min(steps, start.numel())):
        work, length = _cleared(work, before)
        before.append(work)
        image, size = _cleared(forward(work), after)
        after.append(image)
        rows.append(length)
        columns.append(size)
        work = backward(image)
    inner = torch.diag(torch.stack(columns)) + torch.diag(torch.stack(rows)[1:], 1)
    finite = torch.isfinite(inner).all()  # no branch on it: programs are traced
    u, values, v = torch.linalg.svd(torch.where(finite, inner, 0.0))
    left = sum((a * w for a, w in zip(after, u[:, 0], strict=True)), torch.zeros_like(after[0]))
    right = sum((b * w for b, w in zip(before, v[0], strict=True)), torch.zeros_like(start))
    value = torch.where(finite, values[0].clamp_min(tiny), torch.nan)
    return value, torch.where(finite, left, 0.0), torch.where(finite, right, 0.0)


def missed(size: int, pairs: int) -> float:
    """What a norm is at most, over what so many pairs of Golub-Kahan found from a random start.

    Kuczyński and Woźniakowski (1992): for a random start in n dimensions the largest eigenvalue λ
    of a positive matrix is missed by more than ελ after k products with probability at most
    ``1.648·√n·exp(−√ε·(2k − 1))``, here `DOUBT`. With as many pairs as dimensions nothing is.
    """
    if pairs >= size:
        return 1.0
    room = math.log(1.648 * size**0.5 / DOUBT) / (2 * pairs - 1)
    return (1 - room * room) ** -0.5


def convolution_products(
    kernel: Tensor, groups: int = 1
) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """The convolution of one map, padded so that nothing of it is lost, and its transpose."""
    reach = (kernel.shape[-2] - 1, kernel.shape[-1] - 1)

    def forward(image: Tensor) -> Tensor:
        return F.conv2d(image[None], kernel, None, 1, reach, 1, groups)[0]

    def backward(fine: Tensor) -> Tensor:
        return F.conv_transpose2d(fine[None], kernel, None, 1, reach, 0, groups)[0]

    return forward, backward


def _cleared(vector: Tensor, basis: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Of length one and orthogonal to the basis, and its length before; zero where none is left."""
    whole = torch.linalg.vector_norm(vector)
    if basis:
        matrix = torch.stack(basis).flatten(1)
        for _ in range(2):
            vector = vector - (matrix.mT @ (matrix @ vector.flatten())).reshape(vector.shape)
    length = torch.linalg.vector_norm(vector)
    left = length > 100 * torch.finfo(vector.dtype).eps * whole
    length = torch.where(left | ~torch.isfinite(length), length, 0.0)
    return torch.where(length != 0, vector / length.clamp_min(_tiny(vector)), 0.0), length


def norm_is_below(weight: Tensor, radius: float, symmetric: bool) -> bool:
    """``‖W‖₂ < radius``, by Cholesky in double precision: of ``rI ± W``, or of ``r²I − WᵀW``.

    A factorisation that succeeds is a proof up to its rounding, some 1e-13 of the norm.
    """
    exact = weight.detach().double()
    if not symmetric and exact.shape[0] < exact.shape[1]:
        exact = exact.mT
    unit = torch.eye(exact.shape[1], dtype=exact.dtype, device=exact.device)
    if symmetric:
        tests = [radius * unit - exact, radius * unit + exact]
    else:
        tests = [radius * radius * unit - exact.mT @ exact]
    return all(int(torch.linalg.cholesky_ex(test)[1]) == 0 for test in tests)


class _ScaledKernel(torch.autograd.Function):
    """`TightConvolutionBall` in closed form: ``dK = f·(G − ⟨G, K⟩/ν·∂ν/∂K)``."""

    @staticmethod
    def forward(ctx: Any, raw: Tensor, ball: TightConvolutionBall) -> Tensor:
        unit, peak = _in_units(raw.detach())
        value, left, right = ball.quickly(unit)
        size = float(value) * float(ball.margin)
        ctx.ball, ctx.scaled = ball, not float(peak) * size <= ball.radius
        ctx.value = float(peak) * float(value)
        if ctx.scaled:
            ctx.factor = ball.radius / max(size, _tiny(unit)) / float(peak)
            weight = unit * (ball.radius / max(size, _tiny(unit)))
        else:
            ctx.factor, weight = 1.0, raw.detach().clone()
        ctx.save_for_backward(weight, left, right)
        return weight

    @staticmethod
    @last_backward
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        weight, left, right = ctx.saved_tensors
        ball: TightConvolutionBall = ctx.ball
        found = gradient * ctx.factor
        if ctx.scaled:
            reach = [side - 1 for side in weight.shape[-2:]]
            slope = torch.ops.aten.convolution_backward(
                left[None], right[:1], weight, None, (1, 1), reach, (1, 1), False, (0, 0),
                ball.groups, (False, True, False),
            )[1]  # fmt: skip
            inner = float((gradient * weight).sum())
            found.add_(slope, alpha=-inner / ctx.value)
        ball.advance(right, weight)
        return found, None


def noise(seed: int, shape: tuple[int, ...]) -> Tensor:
    """The same on every device and in every process, and nobody else's numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _tiny(tensor: Tensor) -> float:
    return torch.finfo(tensor.dtype).tiny


def _in_units(weight: Tensor) -> tuple[Tensor, Tensor]:
    """The weight in units of its largest entry, so that nothing leaves the range of floats."""
    peak = weight.detach().abs().amax().clamp_min(_tiny(weight))
    return weight / peak, peak
