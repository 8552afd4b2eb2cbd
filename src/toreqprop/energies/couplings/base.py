"""The contract of a coupling: what joins two layers of neurons, both ways."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from toreqprop.energies.activations import Activation
from toreqprop.energies.base import Gradients, Params, Wants
from toreqprop.energies.couplings.ways import LinearWays, Trail, Ways
from toreqprop.energies.pairs import Pair, Signal, shift
from toreqprop.errors import UnsupportedModelError
from toreqprop.tracing import is_plain


class Coupling(ABC):
    """``Φ(post, pre; θ) = ⟨post, F(pre; θ)⟩``, or any Φ of two layers, and its local derivatives.

    ``up`` is ``∂Φ/∂post = F(pre)``, ``down`` is ``∂Φ/∂pre = F'(pre)ᵀ post``, ``gradients`` is
    ``∂Φ/∂θ``: what a synapse can know. All of them take `Pair`s; gradients of pairs are those of
    ``½(Φ₊ − Φ₋)``. Only `up` must be given; the others follow by autograd on this one coupling.
    """

    count: ClassVar[int] = 0
    """How many parameter tensors it has."""
    analytic: ClassVar[bool] = True
    """Whether it extends to complex activities."""
    linear: ClassVar[bool] = False
    """Whether Φ is bilinear: then F is a matrix and `down` its transpose."""
    rounds: ClassVar[bool] = False
    """Whether `up_rounding` and `down_rounding` are known."""
    one_way: ClassVar[bool] = True
    """Whether `up` depends on the lower layer alone, as in a feed-forward network."""

    trails: int = 0
    """How many tensors passes remember of its decisions; see `settled_gradients`."""

    def settled_gradients(
        self,
        post: Signal,
        pre: Signal,
        weight: Tensor,
        prepared: Params,
        wants: Wants,
        trail: Trail,
    ) -> Gradients:
        """`gradients` of two phases that share these decisions."""
        raise NotImplementedError

    def prepare(self, params: Params) -> Params:
        """What every phase can share, in the number of the parameters; handed to the rest."""
        return params

    @abstractmethod
    def up(self, pre: Signal, prepared: Params, post: Signal | None) -> Signal:
        """``∂Φ/∂post``; ``post`` matters only where Φ is not linear in it."""

    def drive(self, x: Tensor, prepared: Params) -> tuple[Tensor, Trail]:
        """`up` of an input, once for every phase, and what was decided there: as many tensors as
        `trails` says, or none."""
        return self.up(x, prepared, None), ()

    def first(self, pre: Tensor, prepared: Params, activation: Activation) -> Tensor:
        """What goes up before anything has come back: the preactivation a relaxation starts at."""
        return self.up(pre, prepared, None)

    def value(self, post: Signal, pre: Signal, prepared: Params) -> Signal:
        """``Φ`` for each sample, shape (batch,)."""
        return (post * self.up(pre, prepared, post)).flatten(1).sum(1)

    def down(self, post: Signal, pre: Signal, prepared: Params) -> Signal:
        """``∂Φ/∂pre``, by autograd of this coupling alone.

        Of pairs the derivative of ``Φ̃ = ½(Φ₊ − Φ₋)``: by the center for the shift, by the shift
        for the center.
        """
        keep = torch.is_grad_enabled()
        paired = isinstance(pre, Pair)
        with torch.enable_grad():
            flat = [pre.center, pre.shift] if isinstance(pre, Pair) else [pre]
            leaves = [t if t.requires_grad else t.detach().requires_grad_() for t in flat]
            value = self.value(post, Pair(*leaves) if paired else leaves[0], prepared)
            total = (shift(value) if isinstance(post, Pair) else value).sum()
            found = torch.autograd.grad(total.real, leaves, create_graph=keep)
        if total.is_complex():
            found = tuple(g.conj() for g in found)
        if paired:
            return Pair(found[1], found[0])
        return Pair(torch.zeros_like(found[0]), found[0]) if isinstance(post, Pair) else found[0]

    def lift(self, move: Tensor, prepared: Params) -> Tensor:
        """``F'·move`` where F is linear: the way up without its constant."""
        if self.count == 0:
            return self.up(move, prepared, None)  # type: ignore[no-any-return]
        return shift(self.up(Pair(torch.zeros_like(move), move), prepared, None))

    def ways(self, prepared: Params, below: tuple[int, ...]) -> Ways | None:
        """Itself with its parameters, as passes take it; None where F does not become linear.

        ``below`` is the shape of the lower layer, without the batch.
        """
        return LinearWays(self, prepared) if self.linear else None

    def gradients(
        self,
        post: Signal,
        pre: Signal,
        weight: Tensor,
        params: Params,
        prepared: Params,
        wants: Wants,
    ) -> Gradients:
        """``Σ_i w_i·∂Φ_i/∂θ`` with ``weight`` w (batch,), of pairs that of ``½(Φ₊ − Φ₋)``; by
        autograd."""
        with torch.enable_grad():
            leaves = tuple(
                p.detach().requires_grad_(want) for p, want in zip(params, wants, strict=True)
            )
            asked = [leaf for leaf, want in zip(leaves, wants, strict=True) if want]
            if not asked:
                return (None,) * len(params)
            value = self.value(post, pre, self.prepare(leaves))
            total = (weight * (value.shift if isinstance(value, Pair) else value)).sum()
            grads = torch.autograd.grad(total, asked, allow_unused=True, materialize_grads=True)
        found = iter(grads)
        return tuple(next(found) if want else None for want in wants)

    def norm(self, params: Params, shape: tuple[int, ...]) -> float:
        """An upper bound on ``‖F'‖₂`` for lower layers of this shape.

        Raises:
            UnsupportedModelError: there is none, and why.
        """
        raise UnsupportedModelError(f"No bound on the norm of {type(self).__name__} is known.")

    def curvature(self, params: Params, shape: tuple[int, ...]) -> float:
        """A bound on ``‖∂²Φ/∂pre²‖`` for ``|post| ≤ 1``; zero where F is linear."""
        return 0.0

    def up_rounding(self, pre: Tensor, prepared: Params) -> Tensor:
        """A bound on the rounding of `up` in float64, entry by entry."""
        raise NotImplementedError

    def down_rounding(self, post: Tensor, pre: Tensor, prepared: Params) -> Tensor:
        """A bound on the rounding of `down` in float64, entry by entry."""
        raise NotImplementedError

    @classmethod
    def examples(cls) -> list[Example]:
        """Small instances, for the contract tests."""
        raise NotImplementedError(f"{cls.__name__} has no examples: registered couplings need one.")


@dataclass(frozen=True)
class Example:
    """A coupling with the shape of a lower layer, without the batch, and of its parameters."""

    coupling: Coupling
    below: tuple[int, ...]
    params: tuple[tuple[int, ...], ...] = ()


def weighted(signal: Signal, weight: Tensor) -> Signal:
    """Every sample times its weight."""
    return signal * weight.reshape(-1, *[1] * (signal.dim() - 1))


def contrast_ends(post: Signal, pre: Signal) -> tuple[Tensor, Tensor]:
    """(post, pre), doubled along the batch, whose outer product is that of ``½(Φ₊ − Φ₋)``.

    ``½(p₊q₊ᵀ − p₋q₋ᵀ) = p̃·q̄ᵀ + p̄·q̃ᵀ``: one product, differences first.
    """
    if not isinstance(post, Pair):
        if isinstance(pre, Pair):
            raise AssertionError("the upper end of a contrast is a pair")
        return post, pre
    if not isinstance(pre, Pair):
        return post.shift, pre
    return torch.cat([post.shift, post.center]), _joined(pre.center, pre.shift)


def _joined(one: Tensor, other: Tensor) -> Tensor:
    """Both along the batch; where they lie one behind the other in memory, as they are."""
    alike = is_plain(one) and is_plain(other) and one.is_neg() == other.is_neg()
    if alike and len(one) and one.stride() == other.stride():
        end = one.data_ptr() + len(one) * one.stride(0) * one.element_size()
        whole = one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
        if whole and other.data_ptr() == end and one.shape[1:] == other.shape[1:]:
            return one.as_strided((len(one) + len(other), *one.shape[1:]), one.stride())
    return torch.cat([one, other])
