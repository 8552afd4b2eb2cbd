"""An energy on a chip: neurons with gains and offsets, weights that differ each way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from toreqprop.energies.base import Energy, Gradients, Layerwise, Pairs, Params, Signals, Wants
from toreqprop.energies.devices.device import Device
from toreqprop.energies.pairs import Signal, center
from toreqprop.energies.stack import StackEnergy
from toreqprop.errors import UnsupportedModelError
from toreqprop.solution import State


@dataclass(frozen=True, eq=False)
class DeviceField(Energy):
    """``s_l = σ(g_l·u_l + t_l·o_l)`` with ``u_l`` of another energy, or of two of its weights.

    Gains g and offsets o of neurons leave an energy, ``G' = (G(s) − t·o·s)/g``: EP stays exact.
    With ``mismatched`` the parameters are given twice, first those of the way up, then those of the
    way down; then there is none, and the rule that learns does not know.
    """

    inner: Energy
    device: Device
    mismatched: bool = False
    _cache: dict[Any, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.mismatched and not isinstance(self.inner, StackEnergy):
            raise UnsupportedModelError(
                f"{type(self.inner).__name__} has no way up and way down to differ: use up_down=0."
            )

    @property
    def activation(self) -> Any:  # type: ignore[override]
        return self.inner.activation

    @property
    def pairs(self) -> bool:  # type: ignore[override]
        return self.inner.pairs

    @property
    def analytic(self) -> bool:
        return self.inner.analytic

    def _ways(self, tensors: Params) -> tuple[Params, Params]:
        """Those of the way up, and those of the way down."""
        half = len(tensors) // 2 if self.mismatched else len(tensors)
        return (tensors[:half], tensors[half:]) if self.mismatched else (tensors, tensors)

    def prepare(self, x: Tensor, params: Params) -> Params:
        up, down = self._ways(params)
        drive = self.inner.prepare(x, up)
        return (*drive, *self.inner.prepare(x, down)) if self.mismatched else drive

    def initial_state(self, drive: Params, params: Params) -> State:
        return self.inner.initial_state(self._ways(drive)[0], self._ways(params)[0])

    def preactivation(self, state: Signals, drive: Params, params: Params) -> Signals:
        if not self.mismatched:
            return self.inner.preactivation(state, drive, params)
        return tuple(
            self.layer_preactivation(layer, state, drive, params) for layer in range(len(state))
        )

    def layer_preactivation(
        self, layer: int, state: Signals, drive: Params, params: Params
    ) -> Signal:
        """``u_l`` for one layer, counted from zero."""
        inner = self.inner
        if not isinstance(inner, StackEnergy):
            return inner.preactivation(state, drive, params)[layer]
        up, down = self._ways(drive)
        return inner.falling(layer, state, down, inner.rising(layer, state, up))

    def colours(self, layers: int) -> tuple[tuple[int, ...], ...]:
        if isinstance(self.inner, Layerwise):
            return self.inner.colours(layers)
        if layers > 1:
            raise UnsupportedModelError(
                "GaussSeidel sweeps need a layered model such as HopfieldMLP: use "
                "solver=FixedPoint()."
            )
        return ((0,),)

    def neurons(self, layer: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Gains, and offsets times temperature, of a layer's neurons, in the shape of a sample."""
        key = (layer, tuple(like.shape[1:]), like.dtype, like.device)
        if key not in self._cache:
            shape = tuple(like.shape[1:])
            gain = torch.exp(self.device.neuron_gain * self.device.normal("gain", layer, shape))
            offset = self.device.neuron_offset * self.device.normal("offset", layer, shape)
            heated = self.inner.temperature(layer) * offset
            self._cache[key] = gain.to(like), heated.to(like)
        return self._cache[key]

    def activate_layer(self, layer: int, preactivation: Signal) -> Signal:
        if self.device.neurons_differ:
            gain, offset = self.neurons(layer, center(preactivation))
            preactivation = preactivation * gain + offset
        return self.inner.activate_layer(layer, preactivation)

    def deactivate(self, state: State) -> State:
        found = self.inner.deactivate(state)
        if not self.device.neurons_differ:
            return found
        faults = [self.neurons(layer, u) for layer, u in enumerate(found)]
        return tuple((u - o) / g for u, (g, o) in zip(found, faults, strict=True))

    def temperature(self, layer: int) -> float:
        return self.inner.temperature(layer)

    def potential(self, state: State) -> Tensor:
        if not self.device.neurons_differ:
            return self.inner.potential(state)
        parts = []
        for layer, s in enumerate(state):
            gain, offset = self.neurons(layer, s)
            own = self.inner.layer_activation(layer).potential(s) * self.temperature(layer)
            parts.append(((own - offset * s) / gain).flatten(1).sum(1))
        return torch.stack(parts).sum(0)

    def interaction(self, state: Signals, x: Tensor, params: Params) -> Signal:
        if self.mismatched:
            raise UnsupportedModelError(
                "Weights that differ between the way up and the way down have no energy: use "
                "up_down=0, or a solver that needs none, such as FixedPoint()."
            )
        return self.inner.interaction(state, x, params)

    def energy_gradients(
        self, phases: Pairs, weight: Tensor, x: Tensor, params: Params, wants: Wants
    ) -> Gradients:
        """The rule of the energy without faults: it sees the activities alone."""
        if not self.mismatched:
            return self.inner.energy_gradients(phases, weight, x, params, wants)
        up, down = self._ways(params)
        half = len(up)
        asked = (wants[0], *map(any, zip(wants[1 : 1 + half], wants[1 + half :], strict=True)))
        found = self.inner.energy_gradients(phases, weight, x, up, asked)
        return (*found, *(None for _ in down))

    def lipschitz(self, params: Params, shapes: list[tuple[int, ...]]) -> float:
        if self.mismatched or self.device.neuron_gain:
            raise UnsupportedModelError(
                "No Lipschitz constant is proven for neurons and weights that differ on a chip."
            )
        return self.inner.lipschitz(params, shapes)

    def rounding(self, state: State, x: Tensor, params: Params) -> State | None:
        return None
