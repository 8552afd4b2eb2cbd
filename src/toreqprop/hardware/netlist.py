"""Models as netlists: what `Ngspice` simulates, and what an engineer opens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor, nn

from toreqprop import checks
from toreqprop.energies import (
    DenseEnergy,
    DenseField,
    LinearCoupling,
    Params,
    StackEnergy,
    Tanh,
    VectorField,
)
from toreqprop.energies.circuits import Faults, ResistiveEnergy
from toreqprop.energies.devices import DeviceField
from toreqprop.errors import UnsupportedModelError
from toreqprop.hardware.circuit import Circuit
from toreqprop.hardware.neuron_netlist import (
    Gains,
    Neuron,
    Readout,
    layered_netlist,
    looped_netlist,
)
from toreqprop.hardware.resistive_netlist import Inputs, resistive_netlist
from toreqprop.models import EquilibriumModel, HopfieldMLP, LoopedMLP, OnChip, ResistiveMLP


@dataclass(frozen=True)
class Push:
    """What nudges each point of a sweep.

    Attributes:
        forces: (points, n) per layer, what a nudge takes from the preactivations; or nothing.
        target: (points, outputs) volts that a conductance pulls outputs to, or None.
        beta: (points,) that conductance in units of the energy's scale.
    """

    forces: tuple[Tensor, ...] = ()
    target: Tensor | None = None
    beta: Tensor | None = None


def netlist(
    model: EquilibriumModel,
    x: Tensor | None = None,
    *,
    neuron: Neuron = "behavioural",
    inputs: Inputs = "crossbar",
) -> Circuit:
    """The model as a circuit, with one point of the sweep per row of ``x``.

    Args:
        model: `ResistiveMLP`, or `LoopedMLP` or `HopfieldMLP` with tanh units; or one of them on
            a chip whose faults last, which are then in the circuit.
        x: (points, inputs); None is one point with every input at zero.
        neuron: tanh as a formula ("behavioural") or from an NPN differential pair ("pair").
        inputs: "crossbar" draws every input and its weights, "norton" one current per node, which
            ngspice solves many times faster.

    Raises:
        UnsupportedModelError: there is no circuit for this model.
    """
    checks.instance("model", model, EquilibriumModel, "only these are circuits")
    with torch.no_grad():
        params = model.system_parameters()
        if x is None:
            x = params[0].new_zeros(1, _width(model))
        model.check_input(x)
        x = model.field_input(x)
    faults = model.faults if isinstance(model, ResistiveMLP) else None
    return field_netlist(model.field, x, params, Push(), neuron, inputs, _readout(model), faults)


def _width(model: EquilibriumModel) -> int:
    if isinstance(model, OnChip):
        return _width(model.network)
    if isinstance(model, ResistiveMLP | HopfieldMLP):
        return model.sizes[0]
    if isinstance(model, LoopedMLP):
        return model.in_features
    raise _no_circuit(model.field)


@torch.no_grad()
def _readout(model: EquilibriumModel) -> Readout | None:
    """Weights and bias of a linear readout, from what it makes of unit states."""
    if isinstance(model, OnChip):
        return _readout(model.network)
    layer = getattr(model, "readout", None)
    if not isinstance(layer, nn.Linear):
        return None
    units = torch.eye(layer.in_features, dtype=layer.weight.dtype)
    below = [units.new_zeros(0)] * (len(getattr(model, "layers", [None])) - 1)
    bias = model.readout_from((*below, 0 * units))
    return (model.readout_from((*below, units)) - bias).mT, bias[0]


def field_netlist(
    field: VectorField,
    x: Tensor,
    params: Params,
    push: Push,
    neuron: Neuron = "behavioural",
    inputs: Inputs = "norton",
    readout: Readout | None = None,
    faults: Faults | None = None,
) -> Circuit:
    """The circuit of a field under a nudge; ``faults`` adds what only transients see."""
    checks.choice("neuron", neuron, get_args(Neuron))
    if isinstance(field, ResistiveEnergy):
        return _resistive(field, x, params, push, neuron, inputs, faults)
    if push.target is not None:
        raise UnsupportedModelError(
            "A nudge by a conductance needs a resistive network: nudge others by a loss."
        )
    nudge = tuple(
        -f / field.temperature(layer) for layer, f in enumerate(push.forces)
    ) or None  # fmt: skip
    gains: Gains | None = None
    downward: Params | None = None
    if isinstance(field, DeviceField):
        field, params, downward, gains = _on_chip(field, params)
    if isinstance(field, DenseEnergy | DenseField) and isinstance(field.activation, Tanh):
        weight_in, bias, weight_rec = params
        if isinstance(field, DenseEnergy):
            weight_rec = weight_rec.mT  # its states multiply from the left
        one = None if nudge is None else nudge[0]
        return looped_netlist(
            weight_in, bias, weight_rec, x, one, neuron, inputs, readout=readout, gains=gains
        )
    if _plain_stack(field):
        layers = list(zip(params[::2], params[1::2], strict=True))
        return layered_netlist(
            layers, x, field.feedback, nudge, neuron, inputs,  # type: ignore[attr-defined]
            readout=readout, gains=gains, downward=downward,
        )  # fmt: skip
    raise _no_circuit(field)


def _on_chip(
    field: DeviceField, params: Params
) -> tuple[VectorField, Params, Params | None, Gains | None]:
    """The energy inside, its weights up, its matrices down where they differ, and its neurons."""
    if field.device.moving:
        raise UnsupportedModelError(
            "A netlist has what lasts: leave noise, converters and phases to the chip, or use "
            "model.at_rest(); Ngspice().transient has noise of its own."
        )
    up, down = params, None
    if field.mismatched:
        half = len(params) // 2
        up, down = params[:half], params[half::2]
    gains = None
    if field.device.neurons_differ:
        widths = [len(p) for p in up[1::2]] if len(up) != 3 else [len(up[1])]
        heat = [field.temperature(layer) for layer in range(len(widths))]
        faults = [field.neurons(i, up[0].new_zeros(1, n)) for i, n in enumerate(widths)]
        gains = [(g, o / t) for (g, o), t in zip(faults, heat, strict=True)]
    return field.inner, up, down, gains


def _no_circuit(field: VectorField) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"There is no circuit for {type(field).__name__}: use ResistiveMLP, or LoopedMLP or "
        "HopfieldMLP with tanh units."
    )


def _plain_stack(field: VectorField) -> bool:
    return (
        isinstance(field, StackEnergy)
        and not field.skips
        and all(isinstance(c, LinearCoupling) for c in field.couplings)
        and all(isinstance(a, Tanh) for a in field.activations or (field.activation,))
    )


def _resistive(
    field: ResistiveEnergy,
    x: Tensor,
    params: Params,
    push: Push,
    neuron: Neuron,
    inputs: Inputs,
    faults: Faults | None,
) -> Circuit:
    if neuron != "behavioural":
        raise UnsupportedModelError(
            "A resistive network has diodes at its nodes and no neurons to choose: leave neuron at "
            '"behavioural".'
        )
    actual, there = field.split(params)
    if faults is not None:
        # Leads and spread are in the actual conductances already.
        there = Faults(
            None, there.saturation, there.up, there.down, there.offset,
            amplifier_time=faults.amplifier_time,
        )  # fmt: skip
    currents: Sequence[Tensor] | None = None
    if push.forces:
        currents = [
            -field.scale / field.temperature(layer) * f for layer, f in enumerate(push.forces)
        ]
    beta = 0.0 if push.beta is None else field.scale * push.beta
    return resistive_netlist(field.network, actual, x, currents, push.target, beta, there, inputs)
