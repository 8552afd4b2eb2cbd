"""Looped and layered networks of tanh units as netlists.

Neuron i has a node with a resistor R and a capacitor C to ground. Its drive and every weight are
currents into that node, W_ij·v(s_j)/R, so that in equilibrium its voltage is the preactivation
``u_i = drive_i + Σ_j W_ij s_j``, one volt per unit, with ``s_i = tanh(u_i)``. A network with
several equilibria may settle at another one than in PyTorch: each point of a sweep starts from the
last one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.energies.circuits.diode import NOMINAL_CELSIUS, thermal_voltage
from toreqprop.errors import InvalidInputError
from toreqprop.hardware.circuit import Circuit, current_source, voltage_source, wrapped
from toreqprop.hardware.resistive_netlist import Inputs

Neuron = Literal["behavioural", "pair"]

Readout = tuple[Tensor, Tensor]
"""W (outputs, n) and b (outputs,)."""

Gains = Sequence[tuple[Tensor, Tensor]]
"""Of each layer (n,) the gains g and offsets o of its neurons: ``s = tanh(g·u + o)``."""

CONDUCTANCE = 1e-6
"""Siemens of each neuron's resistor to ground."""

CAPACITANCE = 1e-12
"""Farads of each neuron's capacitor to ground: RC is one microsecond."""

TAIL_CURRENT = 1e-6
"""Amperes through each differential pair; its collector resistors make it one volt."""

SUPPLY = 3.0
"""Volts of the supplies, ±, of differential pairs."""

COMMENTS = (
    "Units: volts, ohms, amperes, farads, seconds. Layers and units count from 1.",
    "u1_5   node of layer 1, unit 5: its voltage is the preactivation, one volt per unit",
    "s1_5   its output, tanh of that;  in3: input 3",
    "gw1_5_s2_4   weight from s2_4 to unit 5 of layer 1: siemens are weight times 1e-6",
    "out2   output 2, where the network has a readout: W s + b, one volt per unit",
)


@dataclass(frozen=True)
class _Coupling:
    """Weights (n_to, n_from) in units of preactivation, and the names of where they come from."""

    layer: int
    matrix: Tensor
    sources: list[str]


def looped_netlist(
    weight_in: Tensor,
    bias: Tensor,
    weight_rec: Tensor,
    x: Tensor,
    nudge: Tensor | None = None,
    neuron: Neuron = "behavioural",
    inputs: Inputs = "norton",
    celsius: float = NOMINAL_CELSIUS,
    readout: Readout | None = None,
    gains: Gains | None = None,
) -> Circuit:
    """``s = tanh(W_in x + b + W_rec s + nudge)``, one point of the sweep per row of ``x``.

    Args:
        weight_in: (n, inputs); ``bias``: (n,); ``weight_rec``: (n, n).
        bias: (n,).
        weight_rec: (n, n).
        x: (points, inputs).
        nudge: (points, n) added to the preactivation, as ``−β·∂C/∂s``.
        neuron: ``"behavioural"`` writes tanh as a formula, ``"pair"`` builds it from an NPN
            differential pair.
        inputs: ``"crossbar"`` draws every input weight, ``"norton"`` one current per neuron.
        celsius: temperature, which transistor pairs are scaled for.
        readout: (W, b) of outputs ``W s + b``, in volts.
        gains: of the neurons; None is a gain of one and no offset.
    """
    checks.weights("weight_in", weight_in, 2)
    checks.weights("bias", bias, 1)
    if checks.weights("weight_rec", weight_rec, 2).shape[0] != weight_rec.shape[1]:
        raise InvalidInputError(f"weight_rec must be square, got {tuple(weight_rec.shape)}")
    n = len(weight_rec)
    loop = _Coupling(1, weight_rec, _names("s", 1, n))
    nudges = None if nudge is None else [nudge]
    return _neurons(
        "looped", (weight_in, [bias]), [loop], x, nudges, neuron, inputs, celsius, readout, gains
    )


def layered_netlist(
    layers: Sequence[tuple[Tensor, Tensor]],
    x: Tensor,
    feedback: float = 1.0,
    nudge: Sequence[Tensor] | None = None,
    neuron: Neuron = "behavioural",
    inputs: Inputs = "norton",
    celsius: float = NOMINAL_CELSIUS,
    readout: Readout | None = None,
    gains: Gains | None = None,
    downward: Sequence[Tensor] | None = None,
) -> Circuit:
    """``s_l = tanh(W_l s_{l−1} + b_l + γ·W_{l+1}ᵀ s_{l+1} + nudge_l)`` with ``s_0 = x``.

    Args:
        layers: (W, b) per layer, from the input up; W is (n_l, n_{l−1}).
        x: (points, inputs).
        feedback: γ.
        nudge: (points, n_l) per layer, added to the preactivation.
        neuron: see ``looped_netlist``.
        inputs: see ``looped_netlist``.
        celsius: temperature.
        readout: of the last layer, see ``looped_netlist``.
        gains: see ``looped_netlist``.
        downward: the matrices of the way down, one per layer like those of the way up, where they
            are not the same.
    """
    checks.members("layers", layers, tuple, "[(W, b)]", least=1)
    checks.between("feedback", feedback, 0, 1, typical="1")
    for layer, parts in enumerate(layers, start=1):
        checks.tensors(f"layer {layer}", parts, 2)
        checks.weights(f"W of layer {layer}", parts[0], 2)
        if parts[1].shape != parts[0].shape[:1]:
            raise InvalidInputError(
                f"b of layer {layer} must have {len(parts[0])} values, got shape "
                f"{tuple(parts[1].shape)}."
            )
    if downward is not None:
        checks.tensors("downward", downward, len(layers))
        if [b.shape for b in downward[1:]] != [w.shape for w, _ in layers[1:]]:
            raise InvalidInputError("downward must have the shapes of the matrices of the way up.")
    couplings = []
    for layer, (weight, _) in enumerate(layers[1:], start=2):
        if weight.shape[1] != len(layers[layer - 2][0]):
            raise InvalidInputError(
                f"W of layer {layer} must have {len(layers[layer - 2][0])} columns, "
                f"got shape {tuple(weight.shape)}"
            )
        below, above = weight.shape[1], weight.shape[0]
        couplings.append(_Coupling(layer, weight, _names("s", layer - 1, below)))
        back = weight if downward is None else downward[layer - 1]
        couplings.append(_Coupling(layer - 1, feedback * back.mT, _names("s", layer, above)))
    biases = [bias for _, bias in layers]
    fixed = (layers[0][0], biases)
    return _neurons("layered", fixed, couplings, x, nudge, neuron, inputs, celsius, readout, gains)


def _check_gains(gains: Gains | None, biases: list[Tensor]) -> None:
    """Refuse what is not a gain and an offset of every neuron."""
    if gains is None:
        return
    checks.members("gains", gains, tuple, "[(gains, offsets)]", least=1)
    for layer, parts in enumerate(gains, start=1):
        checks.tensors(f"gains of layer {layer}", parts, 2)
    if [tuple(p.shape for p in parts) for parts in gains] != [(b.shape,) * 2 for b in biases]:
        raise InvalidInputError("gains must have a gain and an offset for every neuron of a layer.")


def _neurons(
    kind: str,
    fixed: tuple[Tensor, list[Tensor]],
    couplings: list[_Coupling],
    x: Tensor,
    nudge: Sequence[Tensor] | None,
    neuron: Neuron,
    inputs: Inputs,
    celsius: float,
    readout: Readout | None,
    gains: Gains | None,
) -> Circuit:
    checks.choice("neuron", neuron, get_args(Neuron))
    checks.choice("inputs", inputs, get_args(Inputs))
    thermal_voltage(celsius)  # refuses what is no temperature
    checks.weights("x", x, 2)
    weight_in, biases = fixed
    weight_in, x = weight_in.detach().double(), x.detach().double()
    if x.shape[1] != weight_in.shape[1] or not bool(torch.isfinite(x).all()):
        raise InvalidInputError(
            f"x must be finite with shape (points, {weight_in.shape[1]}), got {tuple(x.shape)}"
        )
    if len(biases[0]) != len(weight_in):
        raise InvalidInputError(
            f"the bias of layer 1 must have {len(weight_in)} values, got {len(biases[0])}"
        )
    drives = [b.detach().double().expand(len(x), -1) for b in biases]
    _check_gains(gains, biases)
    if nudge is not None:
        checks.tensors("nudge", nudge, len(drives))
    for layer, extra in enumerate(nudge or ()):
        if extra.shape != drives[layer].shape:
            raise InvalidInputError(
                f"nudge of layer {layer + 1} must have shape {tuple(drives[layer].shape)}, "
                f"got {tuple(extra.shape)}"
            )
        drives[layer] = drives[layer] + extra.detach().double()
    cards: list[str] = []
    if inputs == "norton":
        drives[0] = drives[0] + x @ weight_in.mT
    else:
        cards += ["", "* inputs"]
        names = [f"in{unit}" for unit in range(1, x.shape[1] + 1)]
        columns = zip(names, x.T.tolist(), strict=True)
        cards += [voltage_source(name, name, column) for name, column in columns]
        couplings = [_Coupling(1, weight_in, names), *couplings]
    if neuron == "pair":
        cards += _supplies()
    for layer, drive in enumerate(drives, start=1):
        cards += ["", f"* layer {layer}: drive (A), resistor, capacitor and tanh of each neuron"]
        for unit, column in enumerate((CONDUCTANCE * drive).T.tolist(), start=1):
            name = f"{layer}_{unit}"
            cards.append(current_source(f"drive{name}", f"u{name}", column))
            cards.append(f"r{name} u{name} 0 {1 / CONDUCTANCE!r}")
            cards.append(f"c{name} u{name} 0 {CAPACITANCE!r}")
            own = (1.0, 0.0)
            if gains is not None:
                gain, offset = gains[layer - 1]
                own = (float(gain[unit - 1]), float(offset[unit - 1]))
            cards += _pair(name, celsius, own) if neuron == "pair" else _behavioural(name, own)
    for coupling in couplings:
        cards += ["", f"* weights into layer {coupling.layer} from {coupling.sources[0]} and on"]
        cards += _weights(coupling)
    sizes = [drive.shape[1] for drive in drives]
    if readout is not None:
        checks.tensors("readout", readout, 2)
        outputs = len(checks.weights("b of the readout", readout[1], 1))
        if readout[0].shape != (outputs, sizes[-1]):
            raise InvalidInputError(
                f"W of the readout must have shape {(outputs, sizes[-1])}, got "
                f"{tuple(readout[0].shape)}."
            )
        cards += _outputs(readout, _names("s", len(sizes), sizes[-1]))
    every = [node for i, n in enumerate(sizes, start=1) for node in _names("u", i, n)]
    probes = {f"u{i}": tuple(_names("u", i, n)) for i, n in enumerate(sizes, start=1)}
    probes |= {f"s{i}": tuple(_names("s", i, n)) for i, n in enumerate(sizes, start=1)}
    if readout is not None:
        probes["out"] = tuple(f"out{unit}" for unit in range(1, len(readout[1]) + 1))
    return Circuit(
        title=f"{kind} network {'-'.join(map(str, [x.shape[1], *sizes]))}, {neuron} neurons",
        comments=COMMENTS,
        cards=tuple(cards),
        probes=probes,
        points=len(x),
        celsius=celsius,
        noisy=tuple((node, CONDUCTANCE) for node in every),
        time_constant=CAPACITANCE / CONDUCTANCE,
    )


def _names(letter: str, layer: int, count: int) -> list[str]:
    return [f"{letter}{layer}_{unit}" for unit in range(1, count + 1)]


def _weights(coupling: _Coupling) -> Iterator[str]:
    rows = (CONDUCTANCE * coupling.matrix.detach().double()).tolist()
    for unit, row in enumerate(rows, start=1):
        name = f"{coupling.layer}_{unit}"
        for source, value in zip(coupling.sources, row, strict=True):
            if value:
                yield f"gw{name}_{source} 0 u{name} {source} 0 {value!r}"


def _outputs(readout: Readout, states: list[str]) -> Iterator[str]:
    weight, bias = (part.detach().double().tolist() for part in readout)
    yield ""
    yield "* readout: outputs W s + b"
    for unit, (row, start) in enumerate(zip(weight, bias, strict=True), start=1):
        words = [f"{w:+.17g}*v({s})" for w, s in zip(row, states, strict=True)]
        yield from wrapped(f"bout{unit} out{unit} 0 v={start!r}", words)


def _behavioural(name: str, own: tuple[float, float]) -> list[str]:
    return [f"bs{name} s{name} 0 v=tanh({_driven(name, own)})"]


def _driven(name: str, own: tuple[float, float]) -> str:
    """``g·u + o``; of an ideal neuron just u."""
    gain, offset = own
    return f"v(u{name})" if own == (1.0, 0.0) else f"{gain!r}*v(u{name})+({offset!r})"


def _supplies() -> list[str]:
    return [
        "",
        "* supplies and the transistor of the pairs, ideal but for its exponential",
        f"vplus plus 0 dc {SUPPLY!r}",
        f"vminus minus 0 dc {-SUPPLY!r}",
        ".model ideal npn(is=1e-18 bf=1e12 br=1e12)",
    ]


def _pair(name: str, celsius: float, own: tuple[float, float]) -> list[str]:
    """``I_t·tanh(u/2V_t)`` is the difference of the two collector currents."""
    load, volts = 1 / TAIL_CURRENT, 2 * thermal_voltage(celsius)
    base = f"ebase{name} base{name} 0 u{name} 0 {volts!r}"
    if own != (1.0, 0.0):
        base = f"bbase{name} base{name} 0 v={volts!r}*({_driven(name, own)})"
    return [
        base,
        f"qa{name} ca{name} base{name} tail{name} ideal",
        f"qb{name} cb{name} 0 tail{name} ideal",
        f"itail{name} tail{name} minus dc {TAIL_CURRENT!r}",
        f"rca{name} plus ca{name} {load!r}",
        f"rcb{name} plus cb{name} {load!r}",
        # Held in a range it never leaves: Newton's iterates cannot run away round a loop.
        f"bs{name} s{name} 0 v=min(1.1,max(-1.1,v(cb{name})-v(ca{name})))",
    ]
