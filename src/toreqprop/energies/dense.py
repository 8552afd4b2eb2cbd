"""One layer of neurons coupled to itself: the energy of ``LoopedMLP``, and its asymmetric twin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.energies.activations import Activation, Tanh, check_activation
from toreqprop.energies.base import Energy, Gradients, Pairs, Params, Signals, VectorField, Wants
from toreqprop.energies.pairs import Signal
from toreqprop.kernels import compiled_loops
from toreqprop.solution import State
from toreqprop.tracing import is_plain


class DenseParams(NamedTuple):
    """``W_in`` (hidden, inputs), ``b`` (hidden,), ``W_rec`` (hidden, hidden)."""

    weight_in: Tensor
    bias: Tensor
    weight_rec: Tensor


@dataclass(frozen=True)
class DenseEnergy(Energy):
    """``Φ = h·(W_in x + b) + ½·h·W_rec h`` with symmetric ``W_rec``; params: `DenseParams`."""

    activation: Activation = Tanh()
    pairs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_activation(self.activation)

    def prepare(self, x: Tensor, params: Params) -> Params:
        return _drive(x, params)

    def initial_state(self, drive: Params, params: Params) -> State:
        return self.activate(drive)

    def preactivation(self, state: Signals, drive: Params, params: Params) -> Signals:
        # W_rec is symmetric, so h W_rec = W_rec h; this order needs no transpose.
        return (torch.addmm(drive[0], state[0], params[2]),)

    def interaction(self, state: Signals, x: Tensor, params: Params) -> Signal:
        (h,) = state
        (drive,) = _drive(x, params)
        return (h * (drive + 0.5 * (h @ params[2]))).sum(1)

    def lipschitz(self, params: Params, shapes: list[tuple[int, ...]]) -> float:
        """``‖W_rec‖₂`` times the activation's slope."""
        # Of a symmetric matrix the eigenvalues say the same, several times faster.
        norm = torch.linalg.eigvalsh(params[2].detach().double()).abs().max()
        return self.activation.slope * float(norm)

    def rounding(self, state: State, x: Tensor, params: Params) -> State:
        return _rounding(state[0], x, params[0], params[1], params[2])

    def energy_gradients(
        self, phases: Pairs, weight: Tensor, x: Tensor, params: Params, wants: Wants
    ) -> Gradients:
        """The Hebbian form: outer products of the activities at the two ends of a weight.

        ``W_rec`` is symmetric, so only the symmetric part of its gradient counts; taking it is left
        to the parametrization, which does so anyway.
        """
        if phases[0].is_complex():
            return super().energy_gradients(phases, weight, x, params, wants)
        post, total = _weighted(weight, phases[0].shift)
        return (
            post @ params[0] if wants[0] else None,
            torch.mm(post.mT, x) if wants[1] else None,
            total if wants[2] else None,
            # ¼w(h₊h₊ᵀ − h₋h₋ᵀ) is the symmetric part of w·shift·centerᵀ.
            torch.mm(post.mT, phases[0].center) if wants[3] else None,
        )


@dataclass(frozen=True)
class DenseField(VectorField):
    """``u = W_in x + b + W_rec h`` with any ``W_rec``: no energy; params: `DenseParams`."""

    activation: Activation = Tanh()
    pairs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_activation(self.activation)

    def prepare(self, x: Tensor, params: Params) -> Params:
        return _drive(x, params)

    def initial_state(self, drive: Params, params: Params) -> State:
        return self.activate(drive)

    def preactivation(self, state: Signals, drive: Params, params: Params) -> Signals:
        return (torch.addmm(drive[0], state[0], params[2].mT),)

    def lipschitz(self, params: Params, shapes: list[tuple[int, ...]]) -> float:
        """``‖W_rec‖₂`` times the activation's slope."""
        norm = torch.linalg.matrix_norm(params[2].detach().double(), ord=2)
        return self.activation.slope * float(norm)

    def rounding(self, state: State, x: Tensor, params: Params) -> State:
        return _rounding(state[0], x, params[0], params[1], params[2].mT)


def _weighted(weight: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """``−w·shift`` of each sample, and the sum over the batch."""
    loops = compiled_loops()
    if loops is not None and is_plain(shift) and shift.is_contiguous() and is_plain(weight):
        post, total = torch.empty_like(shift), shift.new_empty(shift.shape[1])
        loops.weighted(weight.numpy(), shift.numpy(), post.numpy(), total.numpy())
        return post, total
    post = -weight.unsqueeze(1) * shift
    return post, post.sum(0)


def _drive(x: Tensor, params: Params) -> Params:
    return (F.linear(x, params[0], params[1]),)


def _rounding(state: Tensor, x: Tensor, weight: Tensor, bias: Tensor, loop: Tensor) -> State:
    magnitude = F.linear(x.abs(), weight.abs(), bias.abs()) + state.abs() @ loop.abs()
    return (gamma(x.shape[1] + state.shape[1] + 2) * magnitude,)


def gamma(terms: int) -> float:
    """``γ_n = nε/(1 − nε)``: the relative rounding of a sum of n products in float64, in any order.

    Twice as large as needed, so that the bound's own rounding does not matter.
    """
    eps = torch.finfo(torch.float64).eps
    return 2 * terms * eps / (1 - terms * eps)
