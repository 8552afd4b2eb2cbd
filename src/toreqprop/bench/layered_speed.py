"""How long a step takes of networks whose couplings are at their bounds, next to backpropagation's.

A network whose couplings are far below their bounds hardly recurs, and says nothing. Here every
coupling starts at its radius, and what is printed beside the time is what the time was bought with:
the true norms, the passes of both phases, and the smallest cosine of a tensor's gradient with the
exact one at the weights that were timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from toreqprop.bench.contenders import Contender, batches, train_in_turn, train_once
from toreqprop.bench.depth import plain, reaches
from toreqprop.certificate import certify
from toreqprop.models import EquilibriumModel, HopfieldMLP, LoopedMLP
from toreqprop.models.constrained import Constrained

BASELINE, FUSED, OURS = "backprop", "backprop, fused Adam", "TorEqProp"


@dataclass(frozen=True)
class Network:
    """A stack: samples in a batch, width and number of its layers, strength of the way back; or a
    ``loop``, one layer coupled to itself. Its twin by backpropagation has the same hidden layers.
    """

    batch: int
    width: int
    layers: int
    feedback: float
    loop: bool = False


NETWORKS = (
    Network(64, 256, 1, 1.0, loop=True),
    Network(64, 1024, 1, 1.0, loop=True),
    Network(64, 256, 2, 1.0),
    Network(64, 256, 2, 0.1),
    Network(128, 1024, 2, 1.0),
    Network(128, 1024, 2, 0.1),
    Network(64, 256, 6, 0.1),
)


@dataclass(frozen=True)
class Setup:
    """How it is measured. The tight bound keeps 3 % back: of this radius a true norm of 0.95 is
    left."""

    tol: float = 1e-2
    radius: float = 0.978
    rounds: int = 40
    warmup: int = 10
    seed: int = 42
    rate: float = 1e-3


@dataclass(frozen=True)
class Row:
    """One network: milliseconds of backpropagation, times over it (best, and median of processor
    time), and what was bought with them. ``reach`` is the smallest norm of a coupling over its
    radius at the weights that were timed."""

    network: Network
    backprop_ms: float
    ratio: float
    cpu_ratio: float
    fused_ratio: float
    reach: float
    free: float
    nudged: float
    cosine: float
    certified: bool

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def measure(
    setup: Setup,
    networks: tuple[Network, ...] = NETWORKS,
    on_round: Callable[[], None] = lambda: None,
) -> list[Row]:
    """Measure every network; the number of torch threads is the caller's choice."""
    return [_row(setup, network, on_round) for network in networks]


def at_its_bounds(setup: Setup, network: Network, inputs: int, classes: int) -> EquilibriumModel:
    """The network, its couplings enlarged until their balls hold them."""
    torch.manual_seed(setup.seed)
    options: dict[str, Any] = {"radius": setup.radius, "bound": "tight", "tol": setup.tol}
    model: EquilibriumModel
    if network.loop:
        model = LoopedMLP(inputs, network.width, classes, **options)
    else:
        sizes = [inputs, *[network.width] * network.layers, classes]
        model = HopfieldMLP(sizes, feedback=network.feedback, **options)
    with torch.no_grad():
        for layer in _couplings(model):
            norm = float(torch.linalg.matrix_norm(layer.raw, 2))
            layer.raw.mul_(max(1.0, 1.2 * _limit(layer) / norm))
    return model


def _row(setup: Setup, network: Network, on_round: Callable[[], None]) -> Row:
    draw = batches((network.batch, 784, network.width), setup.seed)
    model = at_its_bounds(setup, network, 784, 10)
    twins = {name: plain(784, network.width, network.layers, 10) for name in (BASELINE, FUSED)}
    contenders = [Contender.of(name, twin, setup.rate) for name, twin in twins.items()]
    fused = torch.optim.Adam(twins[FUSED].parameters(), lr=setup.rate, fused=True)
    contenders[1] = replace(contenders[1], optimizer=fused)
    contenders.append(Contender.of(OURS, model, setup.rate))
    for _ in range(setup.warmup):
        train_once(contenders, draw())
        on_round()
    train_in_turn(contenders, draw, setup.rounds, on_round)
    baseline, quick, ours = contenders
    steps = ours.mean_steps()
    found = certify(model, *draw())
    return Row(
        network,
        1e3 * min(baseline.times),
        min(ours.times) / min(baseline.times),
        _median(ours.cpu_times) / _median(baseline.cpu_times),
        min(ours.times) / min(quick.times),
        min(reaches(model)),
        steps["free"],
        steps["nudged"],
        found.min_cosine,
        found.ok,
    )


def _couplings(model: EquilibriumModel) -> list[Constrained]:
    return [layer for layer in model.modules() if isinstance(layer, Constrained)]


def _limit(layer: Constrained) -> float:
    """What the norm of this layer's weight stays below."""
    return layer.constraints[0].radius  # type: ignore[return-value]


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
