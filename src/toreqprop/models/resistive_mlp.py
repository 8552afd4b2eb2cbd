"""Deep resistive networks: resistors, diodes and amplifiers that learn by settling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from toreqprop import checks
from toreqprop.energies import Params
from toreqprop.energies.circuits import (
    Conductances,
    Diode,
    Faults,
    ResistiveEnergy,
    ResistiveNetwork,
)
from toreqprop.energies.circuits.conductance import ConductanceRange
from toreqprop.energies.circuits.diode import NOMINAL_CELSIUS, ZERO_CELSIUS
from toreqprop.energies.circuits.faults import KINDS, draw
from toreqprop.energies.devices import Device
from toreqprop.gradients import GradientEstimator
from toreqprop.models.base import EquilibriumModel, OnFailure, check_batch
from toreqprop.models.constrained import Constrained
from toreqprop.solution import State
from toreqprop.solvers import BlockDescent, Newton, Solver


class ResistiveMLP(EquilibriumModel):
    """Layers of nodes joined by crossbars of conductances; its voltages are the state.

    Inputs are doubled (sources at ±x), conductances non-negative by parametrization, hidden nodes
    clamped by diode pairs; amplifiers feed A times a node's voltage up and 1/A of the current down.
    The circuit settles where its co-content is stationary (`ResistiveEnergy`), and EP's gradient of
    a conductance is the difference of ``½ΔV²`` across it in two phases.

    Args:
        sizes: inputs, hidden layers, outputs, such as ``[64, 32, 10]``.
        gain: A of the amplifiers.
        diode: of the pair at each hidden node.
        clamp: the pair leads to sources at ``±clamp`` volts.
        bias: volts of the bias pair, ``±bias``.
        input_gain: volts per unit of input; None is the square root of the number of inputs, which
            drives hidden nodes about as far as their diodes' knee.
        output_gain: outputs per volt, the scale on which a loss sees the output voltages; None is
            twice the square root of the units below, which makes outputs of order one.
        inverting: each hidden unit also feeds a rail at ``−A·v``, so that weights have a sign in
            every layer.
        upper_bias: a bias pair in every crossbar, not in the first alone.
        unit: siemens that a raw parameter of one stands for.
        low, high: the range of conductances, in units.
        device: the chip this circuit is on, see `hardware.on`; None is a circuit as drawn. What
            ``loss.backward()`` then gives for a conductance is what the circuit measures: the
            derivative by its actual value, which the one who programs the nominal value does not
            know.
        capacitance: of each node in farads; only transients see it.
        celsius: temperature of the circuit.
        gradient, solver, tol, max_steps, on_failure: see `EquilibriumModel`; `Newton()` by default.
        generator: of the conductances at the start; None is torch's global one.

    Shapes: input (batch, sizes[0]), output (batch, sizes[-1]).
    """

    field: ResistiveEnergy

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        gain: float = 4.0,
        diode: Diode | None = None,
        clamp: float = 0.0,
        bias: float = 1.0,
        input_gain: float | None = None,
        output_gain: float | None = None,
        inverting: bool = True,
        upper_bias: bool = True,
        unit: float = 1e-5,
        low: float = 1e-2,
        high: float = 100.0,
        device: Device | None = None,
        capacitance: float = 1e-12,
        celsius: float = NOMINAL_CELSIUS,
        gradient: GradientEstimator | None = None,
        solver: Solver | None = None,
        tol: float | None = None,
        max_steps: int | None = None,
        on_failure: OnFailure = "warn",
        generator: torch.Generator | None = None,
    ) -> None:
        found = checks.sizes("sizes", sizes, 2, "[64, 32, 10]")
        positive = {"gain": gain, "unit": unit, "low": low, "high": high}
        for name, value in (positive | {"capacitance": capacitance}).items():
            checks.number(name, value, 0, above=True)
        for name, value in (("clamp", clamp), ("bias", bias)):
            checks.number(name, value, 0)
        for name, choice in (("input_gain", input_gain), ("output_gain", output_gain)):
            if choice is not None:
                checks.number(name, choice, 0, above=True)
        checks.number("celsius", celsius, -ZERO_CELSIUS, above=True, typical="27")
        checks.flag("inverting", inverting)
        checks.flag("upper_bias", upper_bias)
        checks.instance("diode", diode, Diode, "use Diode()", optional=True)
        checks.instance("device", device, Device, "use hardware.Device()", optional=True)
        checks.generator("generator", generator, optional=True)
        network = ResistiveNetwork(
            found,
            gain=gain,
            diode=Diode() if diode is None else diode,
            clamp=clamp,
            bias=bias,
            input_gain=found[0] ** 0.5 if input_gain is None else input_gain,
            inverting=inverting,
            upper_bias=upper_bias,
            capacitance=capacitance,
            celsius=celsius,
        )
        super().__init__(
            _energy(network, unit),
            gradient=gradient,
            solver=Newton() if solver is None else solver,
            tol=tol,
            max_steps=max_steps,
            on_failure=on_failure,
        )
        self.sizes = found
        self.gain, self.clamp, self.bias = gain, clamp, bias
        self.diode, self.device = network.diode, device
        self.input_gain, self.inverting = network.input_gain, inverting
        self.output_gain = 2 * found[-2] ** 0.5 if output_gain is None else output_gain
        checks.number("output_gain", self.output_gain, 0, above=True)
        self.upper_bias, self.unit, self.low, self.high = upper_bias, unit, low, high
        self.capacitance, self.celsius = capacitance, celsius
        self.crossbars = nn.ModuleList(
            Constrained(
                low
                + (2 - low)
                * torch.rand(found[layer + 1], network.rail_count(layer), generator=generator),
                ConductanceRange(unit, low, high),
            )
            for layer in range(network.depth)
        )
        drawn = Faults() if device is None else draw(device, network)
        self._fixed = (drawn.wire, drawn.amplifier_time)
        for kind in KINDS:
            for layer, value in enumerate(getattr(drawn, kind) or ()):
                name = f"fault_{kind}_{layer}"
                self.register_buffer(name, value.to(torch.get_default_dtype()), persistent=False)

    @property
    def network(self) -> ResistiveNetwork:
        """The parts that do not learn."""
        return self.field.network

    @property
    def faults(self) -> Faults:
        """What differs from the drawing, in the model's precision."""
        buffers = dict(self.named_buffers())
        drawn: dict[str, tuple[Tensor, ...] | None] = {}
        for kind in KINDS:
            names = [name for name in buffers if name.startswith(f"fault_{kind}_")]
            drawn[kind] = tuple(buffers[name] for name in names) or None
        wire, amplifier_time = self._fixed
        return Faults(**drawn, wire=wire, amplifier_time=amplifier_time)

    def conductances(self) -> Conductances:
        """Nominal siemens, (nodes, rails) per crossbar, with their graph."""
        return tuple(crossbar.weight for crossbar in self.crossbars)  # type: ignore[misc]

    def system_parameters(self) -> Params:
        """Actual conductances, then the faults of each hidden layer, if there are any."""
        nominal = self.conductances()
        if self.device is None or not list(self.device.faults()):
            return nominal
        faults = self.faults
        with torch.no_grad():
            missing = [
                a - n
                for a, n in zip(
                    faults.conductances(tuple(n.detach() for n in nominal)), nominal, strict=True
                )
            ]
        actual = [n + m for n, m in zip(nominal, missing, strict=True)]
        like, others = actual[0].detach(), []
        for layer, n in enumerate(self.sizes[1:-1]):
            ones = like.new_ones(n)
            others += [
                ones.expand(2, n) if faults.saturation is None else faults.saturation[layer],
                ones if faults.up is None else faults.up[layer],
                ones if faults.down is None else faults.down[layer],
                0 * ones if faults.offset is None else faults.offset[layer],
            ]
        return (*actual, *others)

    def readout_from(self, state: State) -> Tensor:
        return self.output_gain * state[-1]

    def check_input(self, x: Tensor) -> None:
        check_batch(x, self.sizes[0], next(self.parameters()).dtype)

    variants: ClassVar[tuple[dict[str, Any], ...]] = (
        {},
        {"inverting": False, "upper_bias": False, "clamp": 0.2, "gain": 2.0},
        {"solver": BlockDescent()},
        {"device": Device(spread=0.4, diode_spread=0.7, neuron_offset=0.05, wire=10.0)},
    )

    @classmethod
    def for_rows(
        cls, features: int, hidden: int, outputs: int, *, layers: int | None = None, **options: Any
    ) -> ResistiveMLP:
        return cls([features, *[hidden] * (1 if layers is None else layers), outputs], **options)

    @classmethod
    def example(cls, **options: Any) -> tuple[ResistiveMLP, Tensor, Tensor]:
        return cls([6, 9, 8, 4], **options), torch.randn(5, 6), torch.randint(0, 4, (5,))

    def extra_repr(self) -> str:
        return (
            f"sizes={list(self.sizes)}, gain={self.gain}, diode={self.diode}, "
            f"gradient={self.gradient}, solver={self.solver}"
        )


def _energy(network: ResistiveNetwork, unit: float) -> ResistiveEnergy:
    """In units of an output's total conductance, every conductance at its mean before training."""
    reference = []
    for layer in range(network.depth):
        drawn = network.rail_count(layer)
        if layer + 1 < network.depth:
            drawn += network.sizes[layer + 2] * (1 + network.inverting)
        reference.append(2 * unit * drawn)
    return ResistiveEnergy(network, unit * network.rail_count(network.depth - 1), tuple(reference))
