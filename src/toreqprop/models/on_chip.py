"""A network on a chip: the same parameters, with the chip's faults in every phase."""

from __future__ import annotations

import copy
from typing import Any, ClassVar, overload

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.energies import DenseEnergy, Energy, Params
from toreqprop.energies.devices import Device, DeviceField, Quantised
from toreqprop.energies.devices.programming import programmed, write_noise
from toreqprop.errors import InvalidInputError, UnsupportedModelError
from toreqprop.gradients import CenteredEP
from toreqprop.models.base import EquilibriumModel
from toreqprop.models.hopfield_mlp import HopfieldMLP
from toreqprop.models.looped_mlp import LoopedMLP
from toreqprop.models.resistive_mlp import ResistiveMLP
from toreqprop.solution import State
from toreqprop.solvers import DevicePhases


class OnChip(EquilibriumModel):
    """``network`` as ``device`` runs it; `toreqprop.hardware.on` makes one.

    The optimizer moves the weights that are written. Phases run with those that are on the chip,
    and ``loss.backward()`` gives what the chip measures: the derivative by a weight's actual value.
    A readout outside the field is digital. With an ideal device this is the network, bit for bit.

    Args:
        device: the chip.
        network: the model; its parameters are shared. Or its registered name, with ``options``.
        options: the named network's own.

    Attributes:
        still: whether noise, converters and differences between phases are switched off, so that
            only what lasts is left: the physical network. Its gradient is the one to find.
    """

    def __init__(
        self,
        device: Device,
        network: EquilibriumModel | str,
        options: dict[str, Any] | None = None,
    ) -> None:
        checks.instance("device", device, Device, "use toreqprop.hardware.Device()")
        checks.instance("options", options, dict, "name the network's own", optional=True)
        if isinstance(network, str):
            network = _registered(network)(**(options or {}))
        checks.instance("network", network, EquilibriumModel, "build it first")
        inner = network.field
        if isinstance(network, OnChip) or not isinstance(inner, Energy):
            raise UnsupportedModelError(
                f"{type(network).__name__} with {type(inner).__name__} cannot be put on a chip: "
                "use a network with an energy, such as HopfieldMLP or a symmetric LoopedMLP."
            )
        mismatched = bool(device.up_down) and not isinstance(inner, DenseEnergy)
        # Where only weights differ the chip is the same energy at other weights, and its kernels
        # serve it.
        differs = device.moving or device.neurons_differ or mismatched
        super().__init__(
            DeviceField(inner, device, mismatched) if differs else inner,
            gradient=network.gradient,
            solver=DevicePhases() if device.moving else network.solver,
            on_failure=network.on_failure,
            kernel=network.kernel,
        )
        self.device = device
        self.network = network
        self._written: tuple[list[Tensor], list[Tensor]] = ([], [])

    @property
    def still(self) -> bool:
        return not isinstance(self.solver, DevicePhases)

    def at_rest(self) -> OnChip:
        """A copy with what lasts alone: the physical network, settled as exactly as one likes."""
        found = copy.deepcopy(self)
        found._hooks = {}
        if not found.still:
            found.solver = found.network.solver
        return found

    def system_parameters(self) -> Params:
        """Weights on the chip; of two ways that differ first those up, then those down."""
        nominal = self.network.system_parameters()
        if not self.device.weights_differ:
            return nominal
        noise = self._write_noise(nominal)
        up, down = [], []
        for index, p in enumerate(nominal):
            ways = (p, p)
            if p.dim() > 1:
                one, two = programmed(
                    self.device,
                    index,
                    p.detach(),
                    symmetric=index == 2 and isinstance(self.network.field, DenseEnergy),
                    written=noise[index] if noise else None,
                )
                # The chip is measured at its actual weights; a step there is a step of what is
                # written.
                ways = (p + (one - p).detach(), p + (two - p).detach())
            up.append(ways[0])
            down.append(ways[1])
        mismatched = isinstance(self.field, DeviceField) and self.field.mismatched
        return (*up, *down) if mismatched else tuple(up)

    @torch.no_grad()
    def _write_noise(self, nominal: Params) -> list[Tensor]:
        """That of the last time the weights were changed."""
        if not self.device.write_noise:
            return []
        before, drawn = self._written
        now = [p.detach() for p in self.network.parameters()]
        same = len(before) == len(now) and all(
            torch.equal(a.to(b), b) for a, b in zip(before, now, strict=True)
        )
        if not same:
            drawn = [write_noise(self.device, p) for p in nominal]
            self._written = ([p.clone() for p in now], drawn)
        return [d.to(p) for d, p in zip(drawn, nominal, strict=True)]

    def field_input(self, x: Tensor) -> Tensor:
        found = self.network.field_input(x)
        converter = self.device.inputs
        return found if converter is None else found + (converter(found) - found).detach()

    def readout_from(self, state: State) -> Tensor:
        return self.network.readout_from(state)

    def check_input(self, x: Tensor) -> None:
        self.network.check_input(x)

    def arrange(self, rows: Tensor) -> Tensor:
        return self.network.arrange(rows)

    def layer_shapes(self) -> list[tuple[int, ...]]:
        return self.network.layer_shapes()

    def certified_contraction(self) -> float | None:
        kept = not (self.device.weights_differ or self.device.neuron_gain)
        return self.network.certified_contraction() if kept else None

    def residual_factor(self) -> float | None:
        kept = not (self.device.weights_differ or self.device.neuron_gain)
        return self.network.residual_factor() if kept else None

    def feedforward(self, x: Tensor) -> Tensor | None:
        return self.network.feedforward(x) if not list(self.device.faults()) else None

    def _embedded(self) -> list[Tensor]:
        return self.network._embedded()

    def config(self) -> dict[str, Any]:
        for name, cls in _models().items():
            if type(self.network) is cls:
                options = {**self.network.config(), "gradient": self.gradient}
                if "solver" in options and self.still:
                    options |= {"solver": self.solver, "tol": None, "max_steps": None}
                return {"device": self.device, "network": name, "options": options}
        raise UnsupportedModelError(f"{type(self.network).__name__} is not a registered model.")

    variants: ClassVar[tuple[dict[str, Any], ...]] = (
        {"device": Device(spread=0.3, stuck=0.1, neuron_gain=0.2, neuron_offset=0.3)},
        {"device": Device(weights=Quantised(4), spread=0.2), "network": "looped"},
    )

    @classmethod
    def for_rows(
        cls,
        features: int,
        hidden: int,
        outputs: int,
        *,
        layers: int | None = None,
        device: Device | None = None,
        **options: Any,
    ) -> OnChip:
        network = HopfieldMLP.for_rows(features, hidden, outputs, layers=layers, **options)
        return cls(Device() if device is None else device, network)

    @classmethod
    def example(
        cls, device: Device | None = None, network: str = "hopfield", **options: Any
    ) -> tuple[OnChip, Tensor, Tensor]:
        kind = LoopedMLP if network == "looped" else HopfieldMLP
        model, x, y = kind.example(**options)
        return cls(Device() if device is None else device, model), x, y

    def extra_repr(self) -> str:
        return f"device={self.device}, gradient={self.gradient}, solver={self.solver}"


NUDGE = 0.2
"""β on a chip without a better choice: states are measured and subtracted, so that a weak nudge
drowns. `toreqprop.hardware.budget` says which is best."""


@overload
def on(  # type: ignore[overload-overlap]
    device: Device, model: ResistiveMLP, *, beta: float | None = None
) -> ResistiveMLP: ...


@overload
def on(device: Device, model: EquilibriumModel, *, beta: float | None = None) -> OnChip: ...


def on(
    device: Device, model: EquilibriumModel, *, beta: float | None = None
) -> OnChip | ResistiveMLP:
    """The model on a chip; its parameters are shared with it.

    ``beta`` is the nudge of `CenteredEP` there; None keeps the model's estimator, but for chips
    that are read with noise, coarsely, or for a limited time: these get `NUDGE`. A resistive
    network is a circuit already: its parts get the faults.

    Raises:
        UnsupportedModelError: the model has no energy.
        InvalidInputError: a circuit has no place for one of the faults.
    """
    if isinstance(model, ResistiveMLP):
        return _circuit(device, model, beta)
    found = OnChip(device, model)
    if beta is not None:
        found.gradient = CenteredEP(beta)
    elif device.moving and isinstance(found.gradient, CenteredEP) and found.gradient.beta < NUDGE:
        found.gradient = CenteredEP(NUDGE, swap=found.gradient.swap)
    return found


def _circuit(device: Device, model: ResistiveMLP, beta: float | None) -> ResistiveMLP:
    checks.instance("device", device, Device, "use toreqprop.hardware.Device()")
    chip = ResistiveMLP(**{**model.config(), "device": device}).to(next(model.parameters()))
    chip.crossbars = model.crossbars
    if beta is not None:
        chip.gradient = CenteredEP(beta)
    return chip


def _models() -> dict[str, type[EquilibriumModel]]:
    from toreqprop.models import MODELS  # the registry this model is part of

    return MODELS


def _registered(name: str) -> type[EquilibriumModel]:
    if name not in _models() or _models()[name] is OnChip:
        raise InvalidInputError(f"There is no network {name!r} to put on a chip.")
    return _models()[name]
