"""How long a training step takes, next to backpropagation's and others': all in one run.

Every round draws a few batches and lets each contender train on them (Adam, cross-entropy), one
contender after the other, so that all of them see the same data, the same machine and nearly the
same moment. What is printed beside the time is what the time was bought with: the true norms of the
couplings, the steps of both phases, and the smallest cosine of a tensor's gradient with the exact
one at the weights that were timed.

On some processors compiled steps multiply faster than PyTorch does, with which the plain networks
multiply (`kernels.wide_products`). There the equilibrium network is a second contender, with
PyTorch's products: the figure that says what settling costs, whoever multiplies.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.nn import functional as F

from toreqprop.bench.contenders import Contender, median, shares, train_in_turn
from toreqprop.bench.deq_baseline import METHODS, DeepEquilibrium, deq_available
from toreqprop.bench.speed_rows import ROWS, Built, Network, build, parameters, true_norms
from toreqprop.certificate import certify
from toreqprop.gradients import UnrolledGradient
from toreqprop.kernels import has_wide_products, pytorch_products
from toreqprop.models import EquilibriumModel

OURS, UNROLLED = "TorEqProp", "unrolled"
SAME_PRODUCTS = "TorEqProp, PyTorch's products"
SIZE, DEPTH = "same size", "same depth"
FUSED = ", fused Adam"
"""Added to the name of a plain network whose optimizer is one fused call."""


@dataclass(frozen=True)
class Setup:
    """How long is measured, and from which seed; ``seconds`` is a row's time, more or less,
    ``turn`` how many steps of a contender follow each other."""

    rounds: int = 60
    turn: int = 4
    warmup: int = 10
    seconds: float = 60.0
    seed: int = 42
    rate: float = 1e-3


@dataclass(frozen=True)
class Timing:
    """One contender in one row: best and median wall time and median processor time of a step.

    ``ratio`` is the equilibrium network's best wall time over this contender's, ``cpu_ratio`` that
    of processor times, the median over the rounds of a round's medians; ``same_products`` is that
    ratio where all multiply with PyTorch's products, None where they do anyway.
    """

    name: str
    parameters: int
    best_ms: float
    median_ms: float
    cpu_ms: float
    ratio: float
    cpu_ratio: float
    same_products: float | None


@dataclass(frozen=True)
class Row:
    """All contenders of one network. ``norm`` is its largest coupling's at the weights that were
    timed, ``reach`` the smallest share of what a coupling's norm may be."""

    network: Network
    label: str
    norm: float
    reach: float
    steps: dict[str, float]
    residual: float
    cosine: float
    certified: bool
    rounds: int
    turn: int
    timings: tuple[Timing, ...]

    def of(self, name: str) -> Timing:
        """The timing of that contender; where a network of the same size has the same depth too,
        it is both."""
        known = {t.name: t for t in self.timings}
        return known.get(name) or known[name.replace(DEPTH, SIZE)]


@dataclass(frozen=True)
class SpeedTable:
    """The rows and the conditions they were measured under."""

    rows: tuple[Row, ...]
    conditions: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def measure(
    setup: Setup,
    networks: tuple[Network, ...] = ROWS,
    on_round: Callable[[], None] = lambda: None,
    on_row: Callable[[SpeedTable], None] = lambda table: None,
) -> SpeedTable:
    """Measure every row; the number of torch threads is the caller's choice.

    ``on_row`` is given the table so far after every row, so that it can be kept.
    """
    conditions = {
        **asdict(setup),
        "optimizer": f"torch.optim.Adam(lr={setup.rate:g})",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "dtype": "float32",
        "torchdeq": deq_available(),
        "products": "512 bits wide" if has_wide_products() else "PyTorch's",
        "data": "digits, scaled up to 28 x 28 where there are 784 inputs; random tokens",
    }
    rows: list[Row] = []
    for network in networks:
        rows.append(_row(setup, network, on_round))
        on_row(SpeedTable(tuple(rows), conditions))
    return SpeedTable(tuple(rows), conditions)


def _row(setup: Setup, network: Network, on_round: Callable[[], None]) -> Row:
    built = build(network, setup.seed)
    ours = Contender.of(OURS, built.model(), setup.rate)
    for _ in range(setup.warmup):
        ours.look(*built.draw())
        on_round()
    contenders = [ours, *others(network, built, ours.mean_steps()["free"], setup.rate)]
    for _ in range(2):  # the first compiles and fills caches
        started = time.perf_counter()
        for contender in contenders:
            contender.look(*built.draw())
        once = time.perf_counter() - started
    # Slow rows get fewer rounds, all contenders the same number, and single steps: they do not find
    # in a cache what the step before has left.
    turn = setup.turn if once < _SLOW else 1
    rounds = max(min(setup.rounds, int(setup.seconds / (once * (1 + turn)))), _LEAST)
    train_in_turn(contenders, built.draw, rounds, turn, on_round)
    timings = tuple(_timing(c, contenders, turn) for c in contenders)
    return Row(
        network, **bought_with(ours, network, built), rounds=rounds, turn=turn, timings=timings
    )


def bought_with(ours: Contender, network: Network, built: Built) -> dict[str, Any]:
    """In which regime the equilibrium network is: norms, steps and certificate at its weights."""
    model = ours.model
    if not isinstance(model, EquilibriumModel):
        raise AssertionError("ours is an equilibrium network")
    x, y = (t[:_CERTIFIED] for t in built.draw())
    found, norms = certify(model, x, y, loss=cross_entropy), true_norms(model)
    return {
        "label": network.label,
        "norm": max(norm for norm, _ in norms),
        "reach": min(reach for _, reach in norms),
        "steps": ours.mean_steps(),
        "residual": max(ours.residuals.values()),
        "cosine": found.min_cosine,
        "certified": found.ok,
    }


def others(network: Network, built: Built, steps: float, rate: float) -> list[Contender]:
    """All that the network is held against; ``steps`` are those of its free phase."""
    found = []
    if has_wide_products():
        ours = Contender.of(SAME_PRODUCTS, built.model(), rate, within=pytorch_products)
        found.append(ours)
    for name, make in ((SIZE, built.same_size), (DEPTH, built.same_depth)):
        if make is not None:
            found.append(Contender.of(name, make(), rate))
            found.append(Contender.of(name + FUSED, make(), rate, fused=True))
    unrolled = built.model()
    unrolled.gradient = UnrolledGradient(steps=math.ceil(steps))
    unrolled.on_failure = "ignore"  # it stops where it was told to, converged or not
    found.append(Contender.of(UNROLLED, unrolled, rate))
    for method in METHODS if deq_available() else ():
        deep = DeepEquilibrium(built.model(), method, network.tol)
        found.append(Contender.of(f"torchdeq {method}", deep, rate))
    return found


def _timing(contender: Contender, all_of_them: list[Contender], turn: int) -> Timing:
    ours, *others = all_of_them
    same = next((c for c in others if c.name == SAME_PRODUCTS), None)
    return Timing(
        contender.name,
        parameters(contender.model),
        1e3 * min(contender.times),
        1e3 * median(contender.times),
        1e3 * median(contender.cpu_times),
        min(ours.times) / min(contender.times),
        median(shares(ours, contender, turn)),
        None if same is None else median(shares(same, contender, turn)),
    )


def cross_entropy(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Of every position where there are several."""
    return F.cross_entropy(output.reshape(-1, output.shape[-1]), target.reshape(-1))


_SLOW = 1.0
"""Seconds in which all contenders have made one step."""

_LEAST, _CERTIFIED = 3, 32
"""Rounds a slow row gets at least; samples of the certificate."""
