"""Self-attention as an equilibrium: one with an energy, and the standard form without one.

States and inputs have shape (batch, length, width); projections are stored like those of
``nn.Linear``, (heads · size, width). Logits of positions are a bias (heads, max_length,
max_length) outside the state; a shorter sequence uses its upper left corner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop import checks
from toreqprop.energies.activations import Activation, Tanh, check_activation
from toreqprop.energies.base import (
    Energy,
    Gradients,
    Pairs,
    Params,
    Signals,
    VectorField,
    Wants,
)
from toreqprop.energies.dense import gamma
from toreqprop.energies.pairs import Pair, Signal, logsumexp_pair, softmax_pair
from toreqprop.errors import InvalidInputError
from toreqprop.kernels import compiled_available, pairs
from toreqprop.solution import State
from toreqprop.tracing import all_plain, is_plain

if TYPE_CHECKING:
    from toreqprop.kernels.attention import Heads


class EnergyAttentionParams(NamedTuple):
    """``W_q`` and ``W_k`` (heads · size, width), ``bias`` (heads, max_length, max_length)."""

    query: Tensor
    key: Tensor
    bias: Tensor


class AttentionParams(NamedTuple):
    """``W_q``, ``W_k``, ``W_v`` (heads · size, width), ``W_u`` (width, heads · size), ``bias``."""

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    bias: Tensor


@dataclass(frozen=True)
class AttentionEnergy(Energy):
    """``Φ = s·x + Σ_{h,i} logsumexp_j(q_i·k_j + b_ij)``, ``q = W_q s``, ``k = W_k s``.

    Every token attends and is attended to: ``u = x + W_qᵀ P k + W_kᵀ Pᵀ q`` with the attention
    ``P = softmax(q·k + b)``. Params: `EnergyAttentionParams`.
    """

    heads: int = 2
    activation: Activation = Tanh()
    pairs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.whole_number("heads", self.heads, 1)
        check_activation(self.activation)

    def prepare(self, x: Tensor, params: Params) -> Params:
        """The input, the logits of these positions, and both projections in one matrix."""
        return x, params[2][:, : x.shape[1], : x.shape[1]], torch.cat(params[:2])

    def initial_state(self, drive: Params, params: Params) -> State:
        return (self.activation(drive[0]),)

    def preactivation(self, state: Signals, drive: Params, params: Params) -> Signals:
        x, bias, both = drive
        heads = split_heads(state[0], both, 2 * self.heads)
        q, k = heads[:, : self.heads], heads[:, self.heads :]
        attention = softmax(q @ k.mT + bias)
        told, asked = attention @ k, attention.mT @ q
        return (x + merge_heads(joined(told, asked)) @ both,)

    def energy_gradients(
        self, phases: Pairs, weight: Tensor, x: Tensor, params: Params, wants: Wants
    ) -> Gradients:
        """The local form: queries see what they were told, keys what they were asked."""
        if phases[0].is_complex():
            return super().energy_gradients(phases, weight, x, params, wants)
        query, key, bias = params
        own, heat, n = phases[0], -weight.reshape(-1, 1, 1), x.shape[1]
        heads = compiled_heads(self.prepare(x.detach(), tuple(p.detach() for p in params)))
        if heads is not None and is_plain(own.center) and self.heads == len(bias):
            found = self._compiled_gradients(heads, own, -weight, heat, bias)
            return tuple(g if want else None for g, want in zip(found, wants, strict=True))
        q, k = split_heads(own, query, self.heads), split_heads(own, key, self.heads)
        attention = softmax(q @ k.mT + bias[:, :n, :n])
        told, asked = merge_heads(attention @ k) * heat, merge_heads(attention.mT @ q) * heat
        logits = torch.zeros_like(bias)
        logits[:, :n, :n] = (heat.unsqueeze(1) * attention.shift).sum(0)
        found = (
            own.shift * heat,
            *(_contrasted(near, own) for near in (told, asked)),
            logits,
        )
        return tuple(g if want else None for g, want in zip(found, wants, strict=True))

    def _compiled_gradients(
        self, heads: Heads, own: Pair, weight: Tensor, heat: Tensor, bias: Tensor
    ) -> tuple[Tensor, ...]:
        both, part = heads.contrasts(own.center, own.shift, weight)
        logits = part
        if part.shape != bias.shape:
            logits = torch.zeros_like(bias)
            logits[:, : part.shape[1], : part.shape[1]] = part
        half = len(both) // 2
        return own.shift * heat, both[:half], both[half:], logits

    def rounding(self, state: State, x: Tensor, params: Params) -> State:
        query, key, _ = params
        bias = self.prepare(x, params)[1]
        q, k = (_projected(state[0], w, self.heads) for w in (query, key))
        shares, error = _attention_rounding(q, k, bias, 1.0)
        size = q[0].shape[-1] * self.heads
        total = gamma(4) * x.abs()
        for weight, near, along in ((query, k, shares), (key, q, shares.mT)):
            spread = error if along is shares else error.mT
            mixed = along @ near[0].abs()
            off = spread @ near[0].abs() + along @ near[1] + gamma(x.shape[1] + 2) * mixed
            total = total + merge_heads(off + gamma(size + 4) * mixed) @ weight.abs()
        return (total * (1 + gamma(size)),)

    def lipschitz(self, params: Params, shapes: list[tuple[int, ...]]) -> float:
        return energy_attention_lipschitz(params, self.heads, params[0].shape[-1])

    def interaction(self, state: Signals, x: Tensor, params: Params) -> Signal:
        query, key, _ = params
        drive, bias, _ = self.prepare(x, params)
        q, k = split_heads(state[0], query, self.heads), split_heads(state[0], key, self.heads)
        return (state[0] * drive).sum((1, 2)) + logsumexp(q @ k.mT + bias).sum((1, 2))


@dataclass(frozen=True)
class AttentionField(VectorField):
    """``u = x + W_u softmax(q·k/√d + b) v`` with independent projections: no energy.

    With ``causal`` a token attends to itself and to earlier ones alone. Params:
    `AttentionParams`.
    """

    heads: int = 2
    causal: bool = False
    activation: Activation = Tanh()
    pairs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.whole_number("heads", self.heads, 1)
        checks.flag("causal", self.causal)
        check_activation(self.activation)

    def prepare(self, x: Tensor, params: Params) -> Params:
        return x, masked(params[4], x.shape[1], self.causal)

    def initial_state(self, drive: Params, params: Params) -> State:
        return (self.activation(drive[0]),)

    def preactivation(self, state: Signals, drive: Params, params: Params) -> Signals:
        return (drive[0] + attend(state[0], params[:4], drive[1], self.heads),)

    def rounding(self, state: State, x: Tensor, params: Params) -> State:
        query, key, value, output, _ = params
        bias = self.prepare(x, params)[1]
        q, k, v = (_projected(state[0], w, self.heads) for w in (query, key, value))
        shares, error = _attention_rounding(q, k, bias, q[0].shape[-1] ** -0.5)
        size = q[0].shape[-1] * self.heads
        mixed = shares @ v[0].abs()
        off = error @ v[0].abs() + shares @ v[1] + gamma(x.shape[1] + size + 6) * mixed
        return ((merge_heads(off) @ output.abs().mT + gamma(4) * x.abs()) * (1 + gamma(size)),)

    def lipschitz(self, params: Params, shapes: list[tuple[int, ...]]) -> float:
        return attention_lipschitz(params, self.heads, params[0].shape[-1])


def compiled_heads(
    drive: Params, memory: int = 2, contraction: float | None = None
) -> Heads | None:
    """An energy's drive as compiled code takes it; None where it is not numbers on the CPU."""
    x, bias, both = (t.detach().contiguous() for t in drive)
    if not (compiled_available() and all_plain((x, bias, both))):
        return None
    from toreqprop.kernels.attention import Heads

    return Heads(x, bias, both, memory, 1.0 if contraction is None else contraction)


def attend(source: Signal, weights: Params, bias: Tensor, heads: int) -> Signal:
    """Standard multi-head attention ``W_u softmax(q·k/√d + b) v`` of ``source`` to itself."""
    query, key, value, output = weights
    q, k, v = (split_heads(source, w, heads) for w in (query, key, value))
    attention = softmax(q @ k.mT * q.shape[-1] ** -0.5 + bias)
    return upwards(merge_heads(attention @ v), output)


def _contrasted(post: Pair, pre: Pair) -> Tensor:
    """``½(Σ p₊q₊ᵀ − Σ p₋q₋ᵀ) = Σ p̃·q̄ᵀ + p̄·q̃ᵀ`` over samples and tokens."""
    a = torch.cat([post.shift, post.center]).flatten(0, 1)
    return a.mT @ torch.cat([pre.center, pre.shift]).flatten(0, 1)


def upwards(rows: Signal, weight: Tensor) -> Signal:
    """``W s`` of every row s, over the last dimension."""
    if isinstance(rows, Pair):
        return rows.map(lambda t: upwards(t, weight))
    found = pairs.rows_times(rows, weight, rising=True)
    return F.linear(rows, weight) if found is None else found


def downwards(rows: Signal, weight: Tensor) -> Signal:
    """``Wᵀ s`` of every row s."""
    if isinstance(rows, Pair):
        return rows.map(lambda t: downwards(t, weight))
    found = pairs.rows_times(rows, weight, rising=False)
    return rows @ weight if found is None else found


def split_heads(state: Signal, weight: Tensor, heads: int) -> Signal:
    """``W s`` by head: (batch, heads, length, size)."""
    return upwards(state, weight).unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(parts: Signal) -> Signal:
    """The inverse layout: (batch, length, heads · size)."""
    return parts.transpose(1, 2).flatten(2)


def joined(one: Signal, two: Signal) -> Signal:
    """The heads of both, (batch, heads, length, size), in this order."""
    if isinstance(one, Pair) and isinstance(two, Pair):
        return Pair(joined(one.center, two.center), joined(one.shift, two.shift))
    return torch.cat([one, two], 1)


def masked(bias: Tensor, length: int, causal: bool) -> Tensor:
    """The bias of a sequence of this length, ``−∞`` towards later tokens where ``causal``."""
    part = bias[:, :length, :length]
    if not causal:
        return part
    later = torch.ones(length, length, dtype=torch.bool, device=bias.device).triu(1)
    return part.masked_fill(later, -torch.inf)


def softmax(logits: Signal) -> Signal:
    """Over the last dimension; of complex logits the analytic continuation."""
    if isinstance(logits, Pair):
        both = pairs.softmax_pair(logits.center, logits.shift)
        return softmax_pair(softmax(logits.center), logits.shift) if both is None else Pair(*both)
    if not logits.is_complex():
        found = pairs.softmax(logits)
        return torch.softmax(logits, -1) if found is None else found
    powers = torch.exp(logits - logits.real.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)


def logsumexp(logits: Signal) -> Signal:
    """Over the last dimension; of complex logits the analytic continuation."""
    if isinstance(logits, Pair):
        value, shares = logsumexp(logits.center), softmax(logits.center)
        return logsumexp_pair(value, shares, logits.shift)
    if not logits.is_complex():
        return torch.logsumexp(logits, -1)
    top = logits.real.amax(-1, keepdim=True)
    return torch.log(torch.exp(logits - top).sum(-1)) + top.squeeze(-1)


def _projected(state: Tensor, weight: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """``W s`` by head, and a bound on its rounding."""
    magnitude = split_heads(state.abs(), weight.abs(), heads)
    return split_heads(state, weight, heads), gamma(state.shape[-1] + 2) * magnitude


def _attention_rounding(
    q: tuple[Tensor, Tensor], k: tuple[Tensor, Tensor], bias: Tensor, sharpness: float
) -> tuple[Tensor, Tensor]:
    """``softmax(τ·q·k + b)`` and a bound on its error, given bounds on those of q and k.

    Logits that are off by at most D change every share by a factor within ``e^{±2D}``.
    """
    terms = q[0].shape[-1] + 4
    magnitude = q[0].abs() @ k[0].abs().mT
    off = q[0].abs() @ k[1].mT + q[1] @ (k[0].abs() + k[1]).mT + gamma(terms) * magnitude
    logits = sharpness * (q[0] @ k[0].mT) + bias
    finite = torch.where(torch.isfinite(bias), bias, 0.0).abs()
    off = sharpness * off + gamma(4) * (sharpness * magnitude + finite)
    largest = off.amax(-1, keepdim=True)
    shares = torch.softmax(logits, -1)
    return shares, shares * (torch.expm1(2 * largest) + gamma(logits.shape[-1] + 16))


def energy_attention_lipschitz(params: Params, heads: int, width: int) -> float:
    """A bound on ``‖∂u/∂s‖`` of `AttentionEnergy` over the states of tanh, ``|s| ≤ 1``.

    For a direction v, with ``M = W_qᵀ W_k``, the second derivative of one head's ``Φ`` is
    ``Σ_i Var_{P_i}(v_i·M s_j + s_i·M v_j) + 2 Σ_ij P_ij v_i·M v_j``, at most
    ``2(n + 1)·width·‖M‖² + 2√n·‖M‖``, as ``Σ_i P_ij ≤ n`` for length n and ``‖s_i‖² ≤ width``.
    """
    _check_heads(params, 3, heads, width)
    norms, n = _score_norms(params[0].double(), params[1].double(), heads), params[2].shape[-1]
    return float((2 * (n + 1) * width * norms**2 + 2 * n**0.5 * norms).sum())


def attention_lipschitz(params: Params, heads: int, width: int) -> float:
    """A bound on ``‖∂u/∂s‖`` of `AttentionField` over the states of tanh, ``|s| ≤ 1``.

    One head, with ``M = W_qᵀ W_k/√d`` and ``V = W_u W_v``: what moves with the values is at most
    ``√n·‖V‖``, what moves with the attention, the covariance of scores and values, at most
    ``‖V‖·width·‖M‖·√(2(n + 1))``.
    """
    _check_heads(params, 5, heads, width)
    query, key, value, output, bias = (p.detach().double() for p in params)
    size, n = query.shape[0] // heads, bias.shape[-1]
    scores = _score_norms(query, key, heads) * size**-0.5
    values = value.unflatten(0, (heads, -1))
    outputs = output.unflatten(1, (heads, -1)).transpose(0, 1)
    mixed = torch.linalg.matrix_norm(outputs @ values, ord=2)
    return float((mixed * (n**0.5 + width * scores * (2 * (n + 1)) ** 0.5)).sum())


def _check_heads(params: Params, count: int, heads: int, width: int) -> None:
    """Refuse projections that cannot be those of so many heads."""
    checks.tensors("params", params, count)
    checks.whole_number("heads", heads, 1)
    checks.whole_number("width", width, 1)
    shapes = [tuple(p.shape) for p in params]
    rows = params[0].shape[0] if params[0].dim() == 2 else 0
    if rows % heads or shapes[0] != (rows, width) or shapes[1] != (rows, width) or not rows:
        raise InvalidInputError(
            f"params must start with W_q and W_k of shape ({heads} times a head's size, {width}), "
            f"got {shapes}."
        )


def _score_norms(query: Tensor, key: Tensor, heads: int) -> Tensor:
    """``‖W_qᵀ W_k‖₂`` of each head."""
    q, k = query.unflatten(0, (heads, -1)), key.unflatten(0, (heads, -1))
    return torch.linalg.matrix_norm(q.mT @ k, ord=2)
