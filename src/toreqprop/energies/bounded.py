"""Several weights brought into tight balls at once: one node of the graph for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from toreqprop.kernels import compiled_balls
from toreqprop.tracing import all_plain, direct, is_transformed, last_backward

if TYPE_CHECKING:
    from toreqprop.energies.tight_ball import TightBall

COLD = 3
"""Before the first training step nothing is known: that many times the products."""

FRESH = 0.1
"""Share of noise in the next start: what a step of the optimizer adds may be orthogonal to all that
was large before."""

PROOF_EVERY = 200
"""Training steps from one proof to the next."""


def serves(balls: Sequence[TightBall], weights: Sequence[Tensor]) -> bool:
    """Whether compiled code takes these: matrices in the memory of the CPU, all of one dtype with
    their balls."""
    if torch.compiler.is_compiling() or is_transformed():
        return False
    seen = list(weights)
    for ball, weight in zip(balls, weights, strict=True):
        if not ball.compiled or weight.shape != ball.shape:
            return False
        buffers: Any = ball._buffers  # asking the module for each takes longer than all of this
        if not _starts(ball, buffers["start"]):
            return False
        seen += (buffers["start"], buffers["margin"])
    return all_plain(seen)


def _starts(ball: TightBall, start: Tensor) -> bool:
    """Whether the block lies in memory as compiled code takes it to."""
    return start.numel() == ball.blocks[0] * ball.shape[1] and start.is_contiguous()


def stays(ball: TightBall, start: Tensor, dtype: torch.dtype) -> bool:
    """Whether the block is where it was when the weight was brought into the ball."""
    return start.dtype == dtype and start.is_cpu and _starts(ball, start)


def bounded(balls: tuple[TightBall, ...], weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Each weight in its ball, as `TightBall` says; one compiled call for all of them."""
    return _apply(balls, *weights)  # type: ignore[no-any-return]


class _Bounded(torch.autograd.Function):
    """`TightBall` in closed form: ``dW = f·(G − ⟨G, W⟩/ν·uvᵀ)``, in few passes over memory; of a
    symmetric one the symmetric part."""

    @staticmethod
    def forward(ctx: Any, balls: tuple[TightBall, ...], *raws: Tensor) -> tuple[Tensor, ...]:
        given = [raw.contiguous() for raw in raws]
        weights = tuple([torch.empty_like(raw) for raw in given])
        kinds = [(ball.shape, ball.blocks, ball.symmetric, ball.radius) for ball in balls]
        layout = laid_out(tuple(kinds))
        vectors = given[0].new_empty(layout.total)
        places = _places(balls, given, weights, vectors, layout)
        found = np.empty((len(balls), 4))
        kernels: Any = compiled_balls()
        gemm = kernels.routine(vectors.dtype)
        kernels.into_balls(gemm, places, layout.shapes, layout.radii, COLD, found)
        ctx.balls, ctx.layout, ctx.found = balls, layout, found
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(vectors, *weights)
        return weights

    @staticmethod
    @last_backward
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        vectors, *weights = ctx.saved_tensors
        asked = [
            None if g is None or not wanted else g.contiguous()
            for g, wanted in zip(gradients, ctx.needs_input_grad[1:], strict=True)
        ]
        return (None, *behind_balls(ctx.balls, ctx.layout, ctx.found, vectors, weights, asked))


def behind_balls(
    balls: tuple[TightBall, ...],
    layout: Layout,
    found: np.ndarray,
    vectors: Tensor,
    weights: Sequence[Tensor],
    asked: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """The gradients of the weights before they were brought into their balls, and where the next
    estimates start."""
    # All addresses anew: buffers may have moved since, and what was saved too.
    places = _places(balls, asked, weights, vectors, layout)
    results = list(asked)
    for k, gradient in enumerate(asked):
        if gradient is not None and (found[k, 2] or balls[k].symmetric):
            results[k] = result = torch.empty_like(gradient)
            places[k, 7] = result.data_ptr()
    kernels: Any = compiled_balls()
    if kernels.out_of_balls(places, layout.shapes, found, FRESH, PROOF_EVERY, vectors.numpy()):
        for ball, gradient, weight in zip(balls, asked, weights, strict=True):
            if gradient is not None:
                ball.prove(weight)
    return results


_apply = direct(_Bounded)


class Layout(NamedTuple):
    """Rows, columns, vectors and rounds of every ball, whether it is symmetric and how many pairs
    of vectors are kept of it, and its radius; where its left and right vectors begin among those of
    all, and how many numbers these are."""

    shapes: np.ndarray
    radii: np.ndarray
    offsets: list[list[int]]
    total: int

    @classmethod
    def none(cls) -> Layout:
        """Of no ball at all."""
        return cls(np.empty((0, 6), np.int64), np.empty(0), [], 0)


@lru_cache(maxsize=64)
def laid_out(
    balls: tuple[tuple[tuple[int, ...], tuple[int, int], bool, float], ...], pairs: int = 1
) -> Layout:
    """Of balls with these shapes and blocks, symmetric or not, and radii."""
    shapes = np.array(
        [(*shape, *blocks, symmetric, pairs) for shape, blocks, symmetric, _ in balls]
    )
    sizes = np.stack([pairs * shapes[:, 0], shapes[:, 1] * shapes[:, 2].clip(pairs)], 1)
    ends = np.cumsum(sizes)
    offsets = (ends - sizes.reshape(-1)).reshape(-1, 2)
    radii = np.array([radius for *_, radius in balls])
    return Layout(shapes, radii, offsets.tolist(), int(ends[-1]))


def _places(
    balls: tuple[TightBall, ...],
    first: Sequence[Tensor | None],
    weights: Sequence[Tensor],
    vectors: Tensor,
    layout: Layout,
) -> np.ndarray:
    """The addresses that `kernels.balls` takes, ``first`` in their first column."""
    begin, size, dtype = vectors.data_ptr(), vectors.element_size(), vectors.dtype
    found: list[int] = []
    for ball, one, weight, (left, right) in zip(balls, first, weights, layout.offsets, strict=True):
        buffers: Any = ball._buffers
        start = buffers["start"]
        found += (
            0 if one is None else one.data_ptr(),
            weight.data_ptr(),
            start.data_ptr() if stays(ball, start, dtype) else 0,
            begin + size * left,
            begin + size * right,
            buffers["margin"].data_ptr(),
            buffers["steps"].data_ptr(),
            0,
        )
    return np.array(found, np.int64).reshape(-1, 8)
