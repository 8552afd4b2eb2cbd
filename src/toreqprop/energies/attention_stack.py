"""Attention between layers: a deep energy that descends by sweeps, and a layered vector field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor
from torch.nn import functional as F

from toreqprop.energies.activations import Activation, Tanh
from toreqprop.energies.attention import (
    attend,
    logsumexp,
    masked,
    merge_heads,
    softmax,
    split_heads,
)
from toreqprop.energies.base import Energy, Params, VectorField
from toreqprop.solution import State


class EnergyBlock(NamedTuple):
    """Between layers l−1 and l: ``W_q``, ``W_k`` (heads · size, width), ``bias`` (heads, n, n),
    ``W`` (width, width), ``position`` (n, width)."""

    query: Tensor
    key: Tensor
    bias: Tensor
    forward: Tensor
    position: Tensor


@dataclass(frozen=True)
class AttentionStackEnergy(Energy):
    """Layers joined by attention: ``E = Σ_l w_l·[G(s_l) − s_l·(W s_{l−1} + p_l) − A_l]`` with
    ``A_l = Σ_{h,i} (1/τ)·logsumexp_j(τ·q_i·k_j + b_ij)``, ``q = W_q s_l``, ``k = W_k s_{l−1}``.

    The lowest layer has ``s·x`` in place of the bracket's couplings. A layer asks the one below
    and is asked by the one above: ``s_l = σ(from below + c·from above)``, as the weights are
    ``w_l = c^{l − top}`` with the ``feedback`` c. The smaller c, the closer the relaxation is to a
    forward pass and EP to backpropagation (Xie and Seung 2003); for every c > 0 there is an
    energy. Given its neighbours ``Φ`` is convex in a layer, hence ``s_l ← σ(u_l)`` never raises
    it and `GaussSeidel` sweeps settle whatever the weights. ``τ = 1/√size``. Params: one
    `EnergyBlock` after another.
    """

    heads: int = 2
    layers: int = 2
    feedback: float = 1.0
    activation: Activation = Tanh()

    def weight(self, layer: int) -> float:
        """``w_l``; that of the top layer is one."""
        return self.feedback ** (layer + 1 - self.layers)

    def activate_layer(self, layer: int, preactivation: Tensor) -> Tensor:
        return self.activation(preactivation / self.weight(layer))

    def deactivate(self, state: State) -> State:
        return tuple(self.weight(k) * self.activation.inverse(s) for k, s in enumerate(state))

    def potential(self, state: State) -> Tensor:
        total = state[0].real.new_zeros(len(state[0]))
        for layer, s in enumerate(state):
            total = total + self.weight(layer) * self.activation.potential(s).sum((1, 2))
        return total

    def prepare(self, x: Tensor, params: Params) -> Params:
        n = x.shape[1]
        found = [x]
        for block in energy_blocks(params):
            found += [block.bias[:, :n, :n], block.position[:n]]
        return tuple(found)

    def initial_state(self, drive: Params, params: Params) -> State:
        """A pass upwards in which a layer asks with what it got along the direct path."""
        state = [self.activation(drive[0])]
        for level, block in enumerate(energy_blocks(params)):
            guess = self.activation(_direct(state[-1], block, drive, level))
            asked = self._asked(guess, state[-1], block, drive[2 * level + 1])
            state.append(self.activation(_direct(state[-1], block, drive, level) + asked))
        return tuple(state)

    def layer_preactivation(
        self, layer: int, state: State, drive: Params, params: Params
    ) -> Tensor:
        """``u_l`` for one layer, counted from zero."""
        blocks = energy_blocks(params)
        if layer == 0:
            u = drive[0]
        else:
            block, level = blocks[layer - 1], layer - 1
            u = _direct(state[level], block, drive, level)
            u = u + self._asked(state[layer], state[level], block, drive[2 * level + 1])
        u = self.weight(layer) * u
        if layer == len(blocks):
            return u
        above, block = state[layer + 1], blocks[layer]
        q, attention = self._attention(above, state[layer], block, drive[2 * layer + 1])[::2]
        fed_back = above @ block.forward + merge_heads(attention.mT @ q) @ block.key
        return u + self.weight(layer + 1) * fed_back

    def preactivation(self, state: State, drive: Params, params: Params) -> State:
        return tuple(
            self.layer_preactivation(layer, state, drive, params) for layer in range(len(state))
        )

    def interaction(self, state: State, x: Tensor, params: Params) -> Tensor:
        drive = self.prepare(x, params)
        total = self.weight(0) * (state[0] * x).sum((1, 2))
        for level, block in enumerate(energy_blocks(params)):
            below, above = state[level], state[level + 1]
            q = split_heads(above, block.query, self.heads)
            k = split_heads(below, block.key, self.heads)
            sharpness = q.shape[-1] ** -0.5
            scores = logsumexp(sharpness * (q @ k.mT) + drive[2 * level + 1])
            direct = above * _direct(below, block, drive, level)
            block_total = direct.sum((1, 2)) + scores.sum((1, 2)) / sharpness
            total = total + self.weight(level + 1) * block_total
        return total

    def _attention(
        self, above: Tensor, below: Tensor, block: EnergyBlock, bias: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        q = split_heads(above, block.query, self.heads)
        k = split_heads(below, block.key, self.heads)
        return q, k, softmax(q.shape[-1] ** -0.5 * (q @ k.mT) + bias)

    def _asked(self, above: Tensor, below: Tensor, block: EnergyBlock, bias: Tensor) -> Tensor:
        _, k, attention = self._attention(above, below, block, bias)
        return merge_heads(attention @ k) @ block.query


class FieldBlock(NamedTuple):
    """A block of `AttentionStackField`: ``W_q``, ``W_k``, ``W_v``, ``W_u``, ``bias`` as in
    `AttentionParams`, ``W`` (width, width), ``position`` (n, width)."""

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor
    bias: Tensor
    forward: Tensor
    position: Tensor


@dataclass(frozen=True)
class AttentionStackField(VectorField):
    """``u_l = W s_{l−1} + p_l + attend(s_{l−1}) + T s_{l+1}`` with ``s_0 = x``: no energy.

    ``T`` is the feedback from the layer above. Without it (``feedback=False``) the Jacobian is
    nilpotent: the relaxation is a forward pass, the corrected nudged phase a backward pass, and EP
    is backpropagation in disguise. Params: one `FieldBlock` after another, then the ``T`` of every
    layer but the last.
    """

    heads: int = 2
    feedback: bool = True
    causal: bool = False
    activation: Activation = Tanh()

    def prepare(self, x: Tensor, params: Params) -> Params:
        blocks, _ = self._split(params)
        biases = [masked(block.bias, x.shape[1], self.causal) for block in blocks]
        return self._upward(x, blocks[0], biases[0]), *biases

    def initial_state(self, drive: Params, params: Params) -> State:
        state = [self.activation(drive[0])]
        for level, block in enumerate(self._split(params)[0][1:], start=1):
            state.append(self.activation(self._upward(state[-1], block, drive[level + 1])))
        return tuple(state)

    def preactivation(self, state: State, drive: Params, params: Params) -> State:
        blocks, feedback = self._split(params)
        found = [drive[0]]
        for level, block in enumerate(blocks[1:], start=1):
            found.append(self._upward(state[level - 1], block, drive[level + 1]))
        for level, weight in enumerate(feedback):
            found[level] = found[level] + F.linear(state[level + 1], weight)
        return tuple(found)

    def _upward(self, below: Tensor, block: FieldBlock, bias: Tensor) -> Tensor:
        direct = F.linear(below, block.forward) + block.position[: below.shape[1]]
        return direct + attend(below, block[:4], bias, self.heads)

    def _split(self, params: Params) -> tuple[list[FieldBlock], Params]:
        """The blocks, and the feedback weights."""
        size = len(FieldBlock._fields)
        count = (len(params) + 1) // (size + 1) if self.feedback else len(params) // size
        blocks = [FieldBlock(*params[size * k : size * (k + 1)]) for k in range(count)]
        return blocks, params[size * count :]


def energy_blocks(params: Params) -> list[EnergyBlock]:
    """The parameters by block."""
    return [EnergyBlock(*params[k : k + 5]) for k in range(0, len(params), 5)]


def _direct(below: Tensor, block: EnergyBlock, drive: Params, level: int) -> Tensor:
    return F.linear(below, block.forward) + drive[2 * level + 2]
