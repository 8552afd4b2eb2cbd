"""A circuit as SPICE reads it: its cards, where to measure, and the analyses that can be asked for.

All samples and phases are the points of one sweep: node ``index`` runs over 0, 1, 2, … volts, and
what differs between points is a table over ``v(index)``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from toreqprop import checks
from toreqprop.energies.circuits.diode import GMIN, NOMINAL_CELSIUS, thermal_voltage

STATIC_OPTIONS = f"reltol=1e-12 abstol=1e-18 vntol=1e-13 gmin={GMIN:g} itl1=500 itl2=500"
"""Tolerances at which operating points agree with the PyTorch solver to about 1e-12 V."""

VALUES_PER_LINE = 4


@dataclass(frozen=True)
class Noise:
    """White noise at every free node of a transient.

    Attributes:
        rms: in volts at the node: the noise current is the node's conductance times this.
        interval: seconds between independent values; straight lines between them.
        seed: of values drawn here and written into the netlist; ``None`` leaves it to ngspice's own
            source ``trnoise``, which differs from run to run whatever the seed.
    """

    rms: float
    interval: float
    seed: int | None = None

    def __post_init__(self) -> None:
        checks.number("rms", self.rms, 0, above=True, typical="1e-3 to 0.1 V")
        checks.number("interval", self.interval, 0, above=True, typical="a tenth of RC, in s")
        if self.seed is not None:
            checks.whole_number("seed", self.seed, 0, 2**63)

    def cards(self, nodes: Sequence[tuple[str, float]], stop: float) -> list[str]:
        """One current source per node and its conductance in siemens, up to ``stop`` seconds."""
        found = ["", "* white noise: a current into each node, by its conductance (A)"]
        if self.seed is None:
            shape = f"{self.interval!r} 0 0"
            return found + [
                f"inoise_{node} 0 {node} dc 0 trnoise({self.rms * g!r} {shape})"
                for node, g in nodes
            ]
        generator = torch.Generator().manual_seed(self.seed)
        count = math.ceil(stop / self.interval) + 1
        for node, g in nodes:
            drawn = torch.randn(count, generator=generator, dtype=torch.float64)
            values = (self.rms * g * drawn).tolist()
            pairs = [f"{i * self.interval!r} {value!r}" for i, value in enumerate(values)]
            found += [*wrapped(f"inoise_{node} 0 {node} dc 0 pwl(", pairs), "+ )"]
        return found


@dataclass(frozen=True)
class Circuit:
    """Cards and measuring points.

    Attributes:
        title: the first line.
        comments: what a reader should know: units, names.
        cards: the circuit, one card per line; a line that starts with ``*`` is a heading.
        probes: nodes to measure, by the name of their group, in the order of their units.
        points: points of the sweep.
        celsius: temperature.
        noisy: free nodes and the conductance in siemens at each, where noise enters.
        time_constant: seconds, RC of a typical node: the unit of transients.
    """

    title: str
    comments: tuple[str, ...]
    cards: tuple[str, ...]
    probes: Mapping[str, tuple[str, ...]]
    points: int
    celsius: float = NOMINAL_CELSIUS
    noisy: tuple[tuple[str, float], ...] = field(default=(), repr=False)
    time_constant: float = 1.0

    def __post_init__(self) -> None:
        checks.instance("title", self.title, str, "give it one line")
        checks.members("comments", self.comments, str, '("volts",)')
        checks.members("cards", self.cards, str, '("r1 a 0 1",)')
        checks.instance("probes", self.probes, Mapping, 'use {"nodes1": ("a",)}')
        for name, nodes in self.probes.items():
            checks.members(f"probes[{name!r}]", nodes, str, '("a", "b")', least=1)
        checks.whole_number("points", self.points, 1)
        thermal_voltage(self.celsius)  # refuses what is no temperature
        checks.members("noisy", self.noisy, tuple, '(("a", 1e-6),)')
        checks.number("time_constant", self.time_constant, 0, above=True)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Every measured node, in the order of the groups."""
        return tuple(node for group in self.probes.values() for node in group)

    def operating_points(self) -> str:
        """The netlist with one sweep over all points."""
        # A sweep needs two points; the second of a single one is dropped on reading.
        sweep = f".dc vindex 0 {max(self.points - 1, 1)} 1"
        return self._text(["vindex index 0 dc 0"], STATIC_OPTIONS, sweep)

    def transient(
        self, step: float, stop: float, point: int = 0, noise: Noise | None = None
    ) -> str:
        """The netlist with a transient from 0 V at every node, the inputs of one point applied."""
        checks.number("step", step, 0, above=True)
        checks.number("stop", stop, step, above=True)
        checks.whole_number("point", point, 0, self.points - 1)
        checks.instance("noise", noise, Noise, "use Noise(rms, interval)", optional=True)
        cards = [f"vindex index 0 dc {point}"]
        options = "reltol=1e-6 abstol=1e-15 vntol=1e-9"
        if noise is not None:
            # Tight tolerances would make the step size follow every jump of the noise.
            options = "reltol=1e-3"
            cards += noise.cards(self.noisy, stop)
        return self._text(cards, options, f".tran {step!r} {stop!r} 0 {step!r} uic")

    def _text(self, first: list[str], options: str, analysis: str) -> str:
        head = [self.title, *(f"* {line}" for line in self.comments), ""]
        tail = [
            "",
            f".options {options} noacct temp={self.celsius!r} tnom={NOMINAL_CELSIUS!r}",
            *wrapped(".save", [f"v({node})" for node in self.nodes]),
            analysis,
            ".end",
        ]
        return "\n".join([*head, *first, *self.cards, *tail]) + "\n"


def wrapped(start: str, words: Sequence[str], per_line: int = VALUES_PER_LINE) -> list[str]:
    """A card whose words continue over several lines."""
    lines = [" ".join(words[i : i + per_line]) for i in range(0, len(words), per_line)]
    return [f"{start} {lines[0]}", *(f"+ {line}" for line in lines[1:])]


def table(values: Sequence[float]) -> str:
    """An expression that takes one value per point of the sweep."""
    pairs = [f"{i},{value!r}" for i, value in enumerate(values)]
    lines = [
        ", ".join(pairs[i : i + VALUES_PER_LINE]) for i in range(0, len(pairs), VALUES_PER_LINE)
    ]
    return "pwl(v(index), " + ",\n+ ".join(lines) + ")"


def voltage_source(name: str, node: str, values: Sequence[float]) -> str:
    """A source from ground to ``node``, in volts per point."""
    if all(value == values[0] for value in values):
        return f"v{name} {node} 0 dc {values[0]!r}"
    return f"b{name} {node} 0 v={table(values)}"


def current_source(name: str, node: str, values: Sequence[float]) -> str:
    """A source of current into ``node``, in amperes per point."""
    if all(value == values[0] for value in values):
        return f"i{name} 0 {node} dc {values[0]!r}"
    return f"b{name} 0 {node} i={table(values)}"
