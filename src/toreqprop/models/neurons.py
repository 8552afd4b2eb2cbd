"""A sequential network read as layers of neurons and what couples them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import nn

from toreqprop.energies import (
    Activation,
    Coupling,
    IdentityCoupling,
    Linear,
    MaxPoolCoupling,
    Skip,
    StackEnergy,
    chain,
)
from toreqprop.energies.activations import ClippedReLU, HardTanh
from toreqprop.errors import InvalidInputError
from toreqprop.models.module_couplings import activation_of, coupling_of, is_affine, refused
from toreqprop.models.residual import Residual


@dataclass(frozen=True)
class Part:
    """One module between two layers; ``name`` is that of its weights, empty where it has none."""

    coupling: Coupling
    name: str
    label: str


@dataclass(frozen=True)
class Way:
    """What leads from one layer of neurons to another; source -1 is the input."""

    source: int
    target: int
    parts: tuple[Part, ...]

    @property
    def coupling(self) -> Coupling:
        return chain(*(part.coupling for part in self.parts))

    @property
    def names(self) -> list[str]:
        """The modules whose weight and bias the coupling takes, in turn."""
        return [part.name for part in self.parts if part.name]

    def __str__(self) -> str:
        source = "the input" if self.source < 0 else f"layer {self.source}"
        return f"{', '.join(part.label for part in self.parts)} of {source}"


@dataclass(frozen=True)
class Neurons:
    """The layers of a network: one way to each from the one below, and the skips.

    ``before``, ``inside`` and ``after`` name the modules in front of the first layer, those of the
    layers, and those behind the last one.
    """

    ways: tuple[Way, ...]
    skips: tuple[Way, ...]
    activations: tuple[Activation, ...]
    before: tuple[str, ...]
    inside: tuple[str, ...]
    after: tuple[str, ...]

    def energy(self, feedback: float) -> StackEnergy:
        """The energy of these layers."""
        return StackEnergy(
            tuple(way.coupling for way in self.ways),
            # What is said of all of them is said of the steepest, and of one that is not analytic.
            max(self.activations, key=lambda a: (a.slope, not a.analytic)),
            feedback,
            activations=self.activations,
            skips=tuple(Skip(way.source, way.target, way.coupling) for way in self.skips),
        )

    def names(self) -> list[str]:
        """The modules whose weights the energy takes, in its order."""
        return [name for way in (*self.ways, *self.skips) for name in way.names]

    def __str__(self) -> str:
        lines = []
        for layer, (way, activation) in enumerate(zip(self.ways, self.activations, strict=True)):
            drives = [str(w) for w in (way, *self.skips) if w.target == layer]
            lines.append(f"layer {layer}: {activation} of {' + '.join(drives)}")
        return "\n".join(lines)


def read(net: nn.Sequential) -> Neurons:
    """The layers of neurons of a sequential network.

    Every run of affine modules and poolings up to an activation is one. What stands in front of the
    first affine module or residual block, and what stands behind the last activation or residual
    block, is not among them.

    Raises:
        InvalidInputError: there is no layer in it.
        UnsupportedModelError: a module inside cannot be one; says what to do instead.
    """
    modules = list(_modules(net))
    starts = [k for k, (_, m) in enumerate(modules) if is_affine(m) or isinstance(m, Residual)]
    ends = [
        k
        for k, (name, m) in enumerate(modules)
        if isinstance(m, Residual) or activation_of(m, name) is not None
    ]
    if not starts or not ends or ends[-1] < starts[0]:
        raise InvalidInputError(
            "The network has no layer of neurons: it needs an affine module (nn.Linear, nn.Conv1d "
            "or nn.Conv2d) and an activation after it."
        )
    first, last = starts[0], ends[-1]
    reader = _Reader()
    for name, module in modules[first : last + 1]:
        reader.add(module, name)
    reader.settle()
    names = tuple(name for name, _ in modules)
    return Neurons(
        tuple(reader.ways),
        tuple(reader.skips),
        tuple(reader.activations),
        names[:first],
        names[first : last + 1],
        names[last + 1 :],
    )


def _modules(net: nn.Sequential, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The modules in the order they are called, sequential ones inside opened."""
    for name, module in net._modules.items():  # also those that appear twice
        if module is None:
            continue
        if type(module) is nn.Sequential:
            yield from _modules(module, f"{prefix}{name}.")
        else:
            yield prefix + name, module


@dataclass
class _Reader:
    """Reads module by module; ``pending`` leads up from the last layer, ``joining`` are the
    shortcuts that end where it ends."""

    ways: list[Way] = field(default_factory=list)
    skips: list[Way] = field(default_factory=list)
    activations: list[Activation] = field(default_factory=list)
    pending: list[Part] = field(default_factory=list)
    joining: list[tuple[int, tuple[Part, ...]]] = field(default_factory=list)
    activated: bool = False
    """Whether the last module was an activation."""

    def add(self, module: nn.Module, name: str) -> None:
        activated, self.activated = self.activated, False
        if type(module) is nn.Sequential:
            for inner, child in _modules(module, f"{name}."):
                self.add(child, inner)
        elif isinstance(module, Residual):
            self._add_residual(module, name)
        elif type(module) is nn.Identity:
            self.activated = activated
        elif (activation := activation_of(module, name)) is not None:
            self._close(activation)
            self.activated = True
        else:
            part = _part(module, name)
            if isinstance(part.coupling, MaxPoolCoupling) and activated:
                self._pool_states(part, module, name)
            else:
                if self.joining:
                    self._close(Linear())
                self.pending.append(part)

    def settle(self) -> None:
        """A layer of linear neurons for what no activation has followed, or for the input."""
        if self.pending or self.joining or not self.ways:
            self._close(Linear())

    def _add_residual(self, module: Residual, name: str) -> None:
        self.settle()
        source = len(self.ways) - 1
        self.add(module.body, f"{name}.body")
        self.activated = False
        parts = []
        for n, m in _inside(module.shortcut, f"{name}.shortcut"):
            parts.append(_part(m, n))
            if isinstance(parts[-1].coupling, MaxPoolCoupling):
                raise refused(m, n, "use an average pooling or a stride in the shortcut")
        if not parts or module.scale != 1:
            label = "identity" if module.scale == 1 else f"{module.scale:g} times"
            parts.append(Part(IdentityCoupling(module.scale), "", label))
        self.joining.append((source, tuple(parts)))

    def _close(self, activation: Activation) -> None:
        target = len(self.ways)
        parts = self.pending or [Part(IdentityCoupling(), "", "identity")]
        way = Way(target - 1, target, tuple(parts))
        if target > 0:
            _check_pooling(way, activation)
        self.ways.append(way)
        self.skips += [Way(source, target, past) for source, past in self.joining]
        self.activations.append(activation)
        self.pending, self.joining = [], []

    def _pool_states(self, part: Part, module: nn.Module, name: str) -> None:
        """The largest state is the state of the largest preactivation, as σ is monotone: the
        pooling goes in front of the activation. A sum of several ways cannot be pooled way by way;
        it gets a layer of its own, where clipping once more changes nothing."""
        *_, way = self.ways
        activation = self.activations[-1]
        if not any(skip.target == way.target for skip in self.skips):
            self.ways[-1] = pooled = Way(way.source, way.target, (*way.parts, part))
            if way.target > 0:
                _check_pooling(pooled, activation)
        elif isinstance(activation, ClippedReLU | HardTanh):
            self.pending.append(part)
            self._close(activation)
        else:
            raise refused(
                module, name, "after a residual block use nn.ReLU6() or an average pooling"
            )


def _inside(module: nn.Module | None, name: str) -> list[tuple[str, nn.Module]]:
    """The modules of a shortcut; none where it is the identity."""
    if type(module) is nn.Sequential:
        return [(n, m) for n, m in _modules(module, f"{name}.") if type(m) is not nn.Identity]
    return [] if module is None or type(module) is nn.Identity else [(name, module)]


def _part(module: nn.Module, name: str) -> Part:
    coupling = coupling_of(module, name)
    return Part(coupling, name if coupling.count else "", f"{type(module).__name__} {name}")


def _check_pooling(way: Way, activation: Activation) -> None:
    """Above the first layer a maximum must drive states that are never negative: then the energy is
    convex in the layer below, and sweeps descend; else they may go round in circles for ever."""
    pools = [k for k, p in enumerate(way.parts) if isinstance(p.coupling, MaxPoolCoupling)]
    if not pools:
        return
    negative = float(activation(torch.tensor(-100.0))) < 0
    if negative or pools[-1] < len(way.parts) - 1:
        raise InvalidInputError(
            f"{way.parts[pools[-1]].label} pools what can be negative or is weighted again before "
            "its activation, and sweeps may then go round in circles: follow the affine module by "
            "nn.ReLU6(), nn.ReLU() or nn.Sigmoid() and then the pooling, or use an average pooling."
        )
