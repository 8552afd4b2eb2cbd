"""A map of neurons coupled to its own neighbourhood: the energy of ``EquilibriumMap``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from toreqprop import checks
from toreqprop.energies.activations import Activation, Sigmoid, check_activation
from toreqprop.energies.base import Energy, Gradients, Pairs, Params, Signals, Wants
from toreqprop.energies.couplings import ConvolutionCoupling
from toreqprop.energies.pairs import Signal
from toreqprop.solution import State


class MapParams(NamedTuple):
    """``D`` (channels, inputs, a, a), ``b`` (channels,), ``K`` (channels, channels, a, a)."""

    drive: Tensor
    bias: Tensor
    kernel: Tensor


@dataclass(frozen=True)
class MapEnergy(Energy):
    """``Φ = ½⟨s, K⋆s⟩ + ⟨s, D⋆x + b⟩`` with a symmetric kernel; params: `MapParams`.

    States are maps (batch, channels, height, width) of the image's height and width, whatever they
    are. ``start`` is where every neuron begins: a network with several equilibria settles at the
    one next to it.
    """

    activation: Activation = Sigmoid()
    start: float = 0.0
    pairs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_activation(self.activation)
        checks.number("start", self.start)

    def prepare(self, x: Tensor, params: Params) -> Params:
        return (_coupling(params).up(x, params[:2], None),)

    def initial_state(self, drive: Params, params: Params) -> State:
        return (torch.full_like(drive[0], self.start),)

    def preactivation(self, state: Signals, drive: Params, params: Params) -> Signals:
        coupling = _coupling(params)
        return (coupling.up(state[0], _loop(params), None) + drive[0],)

    def interaction(self, state: Signals, x: Tensor, params: Params) -> Signal:
        coupling, (s,) = _coupling(params), state
        fed = coupling.value(s, x, params[:2])
        return fed + 0.5 * coupling.value(s, s, _loop(params))

    def energy_gradients(
        self, phases: Pairs, weight: Tensor, x: Tensor, params: Params, wants: Wants
    ) -> Gradients:
        """The local form: a synapse sees the activities at its two ends."""
        if phases[0].is_complex():
            return super().energy_gradients(phases, weight, x, params, wants)
        coupling, (s,) = _coupling(params), phases
        heat = -weight
        image = None
        if wants[0]:
            fed_back = coupling.down(s.shift, x, params[:2])
            image = fed_back * heat.reshape(-1, 1, 1, 1)
        fed = coupling.gradients(s, x, heat, params[:2], params[:2], wants[1:3])
        loop = _loop(params)
        half = coupling.gradients(s, s, 0.5 * heat, loop, loop, (wants[3], False))
        return image, *fed, half[0]

    def lipschitz(self, params: Params, shapes: list[tuple[int, ...]]) -> float:
        """The norm of the kernel's convolution times the activation's slope."""
        shape = shapes[0] if shapes else ()
        return self.activation.slope * _coupling(params).norm(_loop(params), shape)

    def rounding(self, state: State, x: Tensor, params: Params) -> State:
        coupling = _coupling(params)
        fed = coupling.up_rounding(x, params[:2])
        return (fed + coupling.up_rounding(state[0], _loop(params)),)


def _coupling(params: Params) -> ConvolutionCoupling:
    """Maps keep their height and width."""
    return ConvolutionCoupling(params[2].shape[-1] // 2)


def _loop(params: Params) -> Params:
    """The kernel's own part, which has no bias."""
    return params[2], torch.zeros_like(params[1])


class SymmetricKernel(nn.Module):
    """``K ↦ ½(K + K̄)`` with ``K̄[a, b, i, j] = K[b, a, −i, −j]``: what goes out along an edge comes
    back along it, so that a map coupled to itself has an energy.

    With ``cooperative=True`` its entries are ``|K|``: cells only ever support each other. The plain
    map then preserves order, so that from a start below (above) everything a relaxation rises
    (falls) to the lowest (highest) equilibrium, with any weights.
    """

    def __init__(self, cooperative: bool = False) -> None:
        super().__init__()
        checks.flag("cooperative", cooperative)
        self.cooperative = cooperative

    def forward(self, weight: Tensor) -> Tensor:
        if self.cooperative:
            weight = weight.abs()
        return 0.5 * (weight + weight.transpose(0, 1).flip(2, 3))

    def right_inverse(self, weight: Tensor) -> Tensor:
        return weight
