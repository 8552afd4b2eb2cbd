"""One layer of neurons coupled to itself: the energy of ``LoopedMLP``, and its asymmetric twin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.energies.activations import Activation, Tanh
from toreqprop.energies.base import Energy, Gradients, Params, VectorField, Wants
from toreqprop.energies.system import per_sample
from toreqprop.solution import State


class DenseParams(NamedTuple):
    """``W_in`` (hidden, inputs), ``b`` (hidden,), ``W_rec`` (hidden, hidden)."""

    weight_in: Tensor
    bias: Tensor
    weight_rec: Tensor


@dataclass(frozen=True)
class DenseEnergy(Energy):
    """``Φ = h·(W_in x + b) + ½·h·W_rec h`` with symmetric ``W_rec``; params: `DenseParams`."""

    activation: Activation = Tanh()

    def prepare(self, x: Tensor, params: Params) -> Params:
        return _drive(x, params)

    def initial_state(self, drive: Params, params: Params) -> State:
        return self.activate(drive)

    def preactivation(self, state: State, drive: Params, params: Params) -> State:
        # W_rec is symmetric, so h W_rec = W_rec h; this order needs no transpose.
        return (torch.addmm(drive[0], state[0], params[2]),)

    def interaction(self, state: State, x: Tensor, params: Params) -> Tensor:
        (h,) = state
        (drive,) = _drive(x, params)
        return (h * (drive + 0.5 * (h @ params[2]))).sum(1)

    def energy_gradients(
        self, phases: tuple[tuple[Tensor, State], ...], x: Tensor, params: Params, wants: Wants
    ) -> Gradients:
        """The Hebbian form: outer products of the activities at the two ends of a weight."""
        states = [s[0] for _, s in phases]
        weights = [per_sample(w, s) for (w, _), s in zip(phases, states, strict=True)]
        if states[0].is_complex():
            return super().energy_gradients(phases, x, params, wants)
        if len(phases) == 2 and torch.equal(phases[0][0], -phases[1][0]):
            # w(h₊h₊ᵀ − h₋h₋ᵀ) = w(Δh̄ᵀ + h̄Δᵀ): one product, and the difference is taken before
            # it, where float32 still resolves it.
            post = weights[0] * (states[0] - states[1])
            recurrent = [(post, 0.5 * (states[0] + states[1]))]
        else:
            post = torch.stack([w * s for w, s in zip(weights, states, strict=True)]).sum(0)
            recurrent = [(0.5 * w * s, s) for w, s in zip(weights, states, strict=True)]
        found = [
            -(post @ params[0]) if wants[0] else None,
            -(post.mT @ x) if wants[1] else None,
            -post.sum(0) if wants[2] else None,
        ]
        if wants[3]:
            total = torch.stack([a.mT @ b for a, b in recurrent]).sum(0)
            found.append(-0.5 * (total + total.mT))
        else:
            found.append(None)
        return tuple(found)


@dataclass(frozen=True)
class DenseField(VectorField):
    """``u = W_in x + b + W_rec h`` with any ``W_rec``: no energy; params: `DenseParams`."""

    activation: Activation = Tanh()

    def prepare(self, x: Tensor, params: Params) -> Params:
        return _drive(x, params)

    def initial_state(self, drive: Params, params: Params) -> State:
        return self.activate(drive)

    def preactivation(self, state: State, drive: Params, params: Params) -> State:
        return (torch.addmm(drive[0], state[0], params[2].mT),)


def _drive(x: Tensor, params: Params) -> Params:
    return (F.linear(x, params[0], params[1]),)
