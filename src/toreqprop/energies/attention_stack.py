"""Attention blocks on top of each other: a layered vector field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor
from torch.nn import functional as F

from toreqprop import checks
from toreqprop.energies.activations import Activation, Tanh, check_activation
from toreqprop.energies.attention import attend, masked
from toreqprop.energies.base import Params, Signals, VectorField
from toreqprop.energies.pairs import Signal
from toreqprop.errors import UnsupportedModelError
from toreqprop.solution import State


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
    pairs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.whole_number("heads", self.heads, 1)
        checks.flag("feedback", self.feedback)
        checks.flag("causal", self.causal)
        check_activation(self.activation)

    def prepare(self, x: Tensor, params: Params) -> Params:
        blocks, _ = self._split(params)
        biases = [masked(block.bias, x.shape[1], self.causal) for block in blocks]
        return self._upward(x, blocks[0], biases[0]), *biases

    def initial_state(self, drive: Params, params: Params) -> State:
        state = [self.activation(drive[0])]
        for level, block in enumerate(self._split(params)[0][1:], start=1):
            state.append(self.activation(self._upward(state[-1], block, drive[level + 1])))
        return tuple(state)

    def preactivation(self, state: Signals, drive: Params, params: Params) -> Signals:
        blocks, feedback = self._split(params)
        found = [drive[0]]
        for level, block in enumerate(blocks[1:], start=1):
            found.append(self._upward(state[level - 1], block, drive[level + 1]))
        for level, weight in enumerate(feedback):
            found[level] = found[level] + F.linear(state[level + 1], weight)
        return tuple(found)

    def lipschitz(self, params: Params, shapes: list[tuple[int, ...]]) -> float:
        raise UnsupportedModelError(
            "No Lipschitz constant is known for stacked attention: without feedback it settles "
            "after as many steps as it has layers, whatever its weights, and need not contract."
        )

    def _upward(self, below: Signal, block: FieldBlock, bias: Tensor) -> Signal:
        direct = F.linear(below, block.forward) + block.position[: below.shape[1]]
        return direct + attend(below, block[:4], bias, self.heads)

    def _split(self, params: Params) -> tuple[list[FieldBlock], Params]:
        """The blocks, and the feedback weights."""
        size = len(FieldBlock._fields)
        count = (len(params) + 1) // (size + 1) if self.feedback else len(params) // size
        blocks = [FieldBlock(*params[size * k : size * (k + 1)]) for k in range(count)]
        return blocks, params[size * count :]
