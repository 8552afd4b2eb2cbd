"""A resistive network as a netlist whose names lead back to layer and unit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from toreqprop import checks
from toreqprop.energies.circuits import Conductances, Faults, ResistiveNetwork
from toreqprop.errors import InvalidInputError
from toreqprop.hardware.circuit import Circuit, current_source, voltage_source

Inputs = Literal["crossbar", "norton"]

POLE_OHMS = 1e3
"""Resistor inside an amplifier of finite bandwidth; nothing but its own capacitor loads it."""

COMMENTS = (
    "Units: volts, ohms, amperes, farads, seconds. Layers and units count from 1.",
    "in3p, in3n   sources at +x3 and -x3 (times the input gain); biasp, biasn the bias pair",
    "h1_5         hidden node: layer 1, unit 5;  out2: output node of unit 2",
    "up1_5        what h1_5 feeds the next crossbar: A times its voltage; dn1_5 the inverse of it",
    "rh1_5_in3p   resistor between node h1_5 and rail in3p: 1/conductance",
    "nudge1_5     current into a node that nudges it; y2, beta: a nudge by a conductance, target",
    "             voltage of output 2 and siemens written as volts",
)


def resistive_netlist(
    network: ResistiveNetwork,
    conductances: Conductances,
    x: Tensor,
    currents: Sequence[Tensor] | None = None,
    target: Tensor | None = None,
    beta: float | Tensor = 0.0,
    faults: Faults | None = None,
    inputs: Inputs = "crossbar",
) -> Circuit:
    """The circuit with one point of the sweep per row of ``x``.

    Args:
        network: the circuit.
        conductances: nominal, (nodes, rails) siemens per crossbar; one at zero is left out.
        x: (points, inputs).
        currents: (points, nodes) amperes per layer that nudge its nodes.
        target: (points, outputs) volts that a conductance pulls the outputs to.
        beta: that conductance in siemens, a number or (points,).
        faults: of the components.
        inputs: ``"crossbar"`` draws every source and resistor of the first crossbar; ``"norton"``
            replaces them by their exact equivalent, one current and one resistor per node, which
            ngspice solves many times faster.
    """
    checks.choice("inputs", inputs, get_args(Inputs))
    checks.instance("network", network, ResistiveNetwork, "use ResistiveNetwork(sizes)")
    network.check(conductances, x, target)
    x = x.detach().double()
    conductances = tuple(g.detach().double() for g in conductances)
    checks.instance("faults", faults, Faults, "use Faults()", optional=True)
    faults = faults or Faults()
    faults.check(network)
    if currents is not None:
        checks.tensors("currents", currents)
        rows = [(len(x), n) for n in network.sizes[1:]]
        if [tuple(c.shape) for c in currents] != rows:
            raise InvalidInputError(f"currents must have shapes {rows}, one per layer.")
    beta = torch.as_tensor(beta if isinstance(beta, Tensor) else checks.number("beta", beta))
    if beta.numel() not in (1, len(x)):
        raise InvalidInputError(f"beta must be a number or one for each of {len(x)} points.")
    actual = faults.conductances(conductances)
    cards = [
        *_clamps(network),
        *(_input_crossbar if inputs == "crossbar" else _norton)(network, actual[0], x),
    ]
    for layer in range(1, network.depth):
        cards += _hidden(network, layer, faults)
        cards += ["", f"* crossbar {layer + 1}"]
        cards += _resistors(actual[layer], _nodes(network, layer), _rails(network, layer))
    cards += ["", "* capacitance of every node"]
    every = [node for layer in range(network.depth) for node in _nodes(network, layer)]
    cards += [f"c{node} {node} 0 {network.capacitance!r}" for node in every]
    if currents is not None:
        cards += ["", "* nudge: a current into each node (A)"]
        for layer, values in enumerate(currents):
            named = zip(_nodes(network, layer), values.detach().double().T.tolist(), strict=True)
            cards += [current_source(f"nudge_{node}", node, v) for node, v in named if any(v)]
    if target is not None:
        strength = beta.to(x.dtype).reshape(-1).expand(len(x))
        cards += _nudge(network, target.detach().double(), strength)
    totals = [float(total) for g in actual for total in g.sum(1)]
    probes = {f"nodes{i + 1}": tuple(_nodes(network, i)) for i in range(network.depth)}
    for layer in range(1, network.depth):
        probes[f"rails{layer + 1}"] = tuple(_rails(network, layer))
    return Circuit(
        title=f"resistive network {'-'.join(map(str, network.sizes))}, gain {network.gain:g}",
        comments=_comments(network, faults),
        cards=tuple(cards),
        probes=probes,
        points=len(x),
        celsius=network.celsius,
        noisy=tuple(zip(every, totals, strict=True)),
        time_constant=network.capacitance / (sum(totals) / len(totals)),
    )


def _comments(network: ResistiveNetwork, faults: Faults) -> tuple[str, ...]:
    found = list(COMMENTS)
    if faults.wire:
        found.append(f"resistors include their leads: {faults.wire:g} ohms times (node + rail)")
    if faults.amplifier_time:
        found.append(f"amplifiers have a pole: time constant {faults.amplifier_time:g} s")
    return tuple(found)


def _nodes(network: ResistiveNetwork, layer: int) -> list[str]:
    """Names of the free nodes a crossbar leads to; ``layer`` counts crossbars from zero."""
    units = range(1, network.sizes[layer + 1] + 1)
    if layer == network.depth - 1:
        return [f"out{unit}" for unit in units]
    return [f"h{layer + 1}_{unit}" for unit in units]


def _rails(network: ResistiveNetwork, layer: int) -> list[str]:
    """Names of what feeds a crossbar, in the order of its conductances' columns."""
    units = range(1, network.sizes[layer] + 1)
    if layer == 0:
        signals = [f"in{unit}{sign}" for sign in "pn" for unit in units]
        return [*signals, "biasp", "biasn"]
    kinds = ("up", "dn") if network.inverting else ("up",)
    signals = [f"{kind}{layer}_{unit}" for kind in kinds for unit in units]
    return [*signals, "biasp", "biasn"] if network.upper_bias else signals


def _clamps(network: ResistiveNetwork) -> Iterator[str]:
    yield ""
    yield "* bias pair, clamps, and the diode of every hidden node"
    yield f"vbiasp biasp 0 dc {network.bias!r}"
    yield f"vbiasn biasn 0 dc {-network.bias!r}"
    yield f"vclampp clampp 0 dc {network.clamp!r}"
    yield f"vclampn clampn 0 dc {-network.clamp!r}"
    yield f".model clamp d(is={network.diode.saturation!r} n={network.diode.emission!r})"


def _input_crossbar(network: ResistiveNetwork, g: Tensor, x: Tensor) -> Iterator[str]:
    yield ""
    yield "* inputs, doubled"
    for unit, column in enumerate((network.input_gain * x).T.tolist(), start=1):
        yield voltage_source(f"in{unit}p", f"in{unit}p", column)
        yield f"ein{unit}n in{unit}n 0 in{unit}p 0 -1"
    yield ""
    yield "* crossbar 1"
    yield from _resistors(g, _nodes(network, 0), _rails(network, 0))


def _norton(network: ResistiveNetwork, g: Tensor, x: Tensor) -> Iterator[str]:
    yield ""
    yield "* crossbar 1 and its sources as their Norton equivalent: a current, a resistor"
    currents = (network.input_rails(x) @ g.mT).T.tolist()
    for node, current, total in zip(_nodes(network, 0), currents, g.sum(1).tolist(), strict=True):
        yield current_source(f"norton_{node}", node, current)
        yield f"rnorton_{node} {node} 0 {1 / total!r}"


def _resistors(g: Tensor, nodes: list[str], rails: list[str]) -> Iterator[str]:
    for node, row in zip(nodes, g.tolist(), strict=True):
        for rail, value in zip(rails, row, strict=True):
            if value > 0:
                yield f"r{node}_{rail} {rail} {node} {1 / value!r}"


def _hidden(network: ResistiveNetwork, layer: int, faults: Faults) -> Iterator[str]:
    """Diodes and amplifiers of hidden layer ``layer``, counted from one."""
    n = network.sizes[layer]
    ones = torch.ones(n, dtype=torch.float64)
    above, below = ((ones * part).tolist() for part in faults.diode_factors(layer - 1))
    rising = (ones * faults.up_gain(layer - 1, network.gain)).tolist()
    falling = (ones * faults.down_gain(layer - 1, network.gain)).tolist()
    offset = (ones * faults.offset_of(layer - 1)).tolist()
    yield ""
    yield f"* hidden layer {layer}: diode pairs, amplifiers up (e), a share of the current down (f)"
    for i in range(n):
        unit = f"{layer}_{i + 1}"
        yield f"dpos{unit} h{unit} clampp clamp area={above[i]!r}"
        yield f"dneg{unit} clampn h{unit} clamp area={below[i]!r}"
        sensed = f"h{unit} 0"
        if offset[i]:
            yield f"voffset{unit} offset{unit} 0 dc {-offset[i]!r}"
            sensed = f"h{unit} offset{unit}"
        if faults.amplifier_time:
            yield f"epole{unit} fast{unit} 0 {sensed} 1"
            yield f"rpole{unit} fast{unit} slow{unit} {POLE_OHMS!r}"
            yield f"cpole{unit} slow{unit} 0 {faults.amplifier_time / POLE_OHMS!r}"
            sensed = f"slow{unit} 0"
        yield f"eup{unit} amp{unit} 0 {sensed} {rising[i]!r}"
        yield f"vup{unit} amp{unit} up{unit} dc 0"
        yield f"fup{unit} h{unit} 0 vup{unit} {falling[i]!r}"
        if network.inverting:
            yield f"edn{unit} inv{unit} 0 amp{unit} 0 -1"
            yield f"vdn{unit} inv{unit} dn{unit} dc 0"
            yield f"fdn{unit} 0 h{unit} vdn{unit} {falling[i]!r}"


def _nudge(network: ResistiveNetwork, target: Tensor, beta: Tensor) -> Iterator[str]:
    yield ""
    yield "* nudge: the current beta*(y - v) into each output"
    yield voltage_source("beta", "beta", beta.tolist())
    for unit, column in enumerate(target.T.tolist(), start=1):
        yield voltage_source(f"y{unit}", f"y{unit}", column)
        yield f"bnudge{unit} 0 out{unit} i=v(beta)*(v(y{unit})-v(out{unit}))"
