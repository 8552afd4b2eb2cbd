"""How long a training step takes, next to backpropagation's and others': all in one run.

Every round draws a few batches and lets each contender train on them (Adam, cross-entropy), one
contender after the other, so that all of them see the same data, the same machine and nearly the
same moment. What is printed beside the time is what the time was bought with: the true norms of the
couplings, the steps of both phases, and the smallest cosine of a tensor's gradient with the exact
one at the weights that were timed.

On some processors compiled steps multiply faster than PyTorch does, with which the plain networks
multiply (`kernels.wide_products`). What leads is the equilibrium network with PyTorch's products:
the figure that says what settling costs, whoever multiplies. As it runs, and at the default
tolerance, it is a contender too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.nn import functional as F

from toreqprop.bench.contenders import Contender, median, shares, train_in_turn
from toreqprop.bench.deq_baseline import METHODS, DeepEquilibrium, deq_available
from toreqprop.bench.speed_rows import ROWS, Built, Network, build, parameters, true_norms
from toreqprop.certificate import Certificate, certify
from toreqprop.gradients import UnrolledGradient
from toreqprop.kernels import has_wide_products, pytorch_products
from toreqprop.models import EquilibriumModel

OURS, UNROLLED = "TorEqProp", "unrolled"
AS_IT_RUNS = "TorEqProp, as it runs"
DEFAULT = "TorEqProp, default tolerance"
SIZE, DEPTH = "same size", "same depth"
REARRANGED = "same size, rearranged"
FUSED = ", fused Adam"
"""Added to the name of a plain network whose optimizer is one fused call."""

DEFAULT_TOL = 1e-3


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
    certificates: int = 8


@dataclass(frozen=True)
class Timing:
    """One contender in one row: best and median wall time and median processor time of a step.

    ``ratio`` is the equilibrium network's best wall time over this contender's, ``cpu_ratio`` that
    of processor times, the median over the rounds of a round's medians; ``as_it_runs`` is the
    latter with the equilibrium network's own products, None where these are PyTorch's anyway.
    """

    name: str
    parameters: int
    best_ms: float
    median_ms: float
    cpu_ms: float
    ratio: float
    cpu_ratio: float
    as_it_runs: float | None


@dataclass(frozen=True)
class Row:
    """All contenders of one network. ``norm`` is its largest coupling's at the end, ``reach`` the
    smallest share of what a coupling's norm may be. ``cosine`` and ``norm_ratio`` are the worst of
    so many ``certificates``, of a batch each, between the rounds that were timed."""

    network: Network
    label: str
    norm: float
    reach: float
    steps: dict[str, float]
    residual: float
    cosine: float
    norm_ratio: float
    certificates: int
    passed: int
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
    ours = equilibrium_contender(built, setup.rate)
    warm_up(ours, built, setup.warmup, on_round)
    contenders = [ours, *others(network, built, ours.mean_steps()["free"], setup.rate)]
    for contender in contenders[1:]:
        warm_up(contender, built, setup.warmup, on_round)
    for _ in range(2):  # the first fills caches
        started = time.perf_counter()
        for contender in contenders:
            contender.look(*built.draw())
        once = time.perf_counter() - started
    # Slow rows get fewer rounds, all contenders the same number, and single steps: they do not find
    # in a cache what the step before has left.
    turn = setup.turn if once < _SLOW else 1
    rounds = max(min(setup.rounds, int(setup.seconds / (once * (1 + turn)))), _LEAST)
    proofs: list[Certificate] = []
    every = math.ceil(rounds / setup.certificates)

    def after(number: int) -> None:
        if (rounds - 1 - number) % every == 0:
            proofs.append(proof(ours, built))
        on_round()

    train_in_turn(contenders, built.draw, rounds, turn, after)
    timings = tuple(_timing(c, contenders, turn) for c in contenders)
    return Row(
        network, **bought_with(ours, network, proofs), rounds=rounds, turn=turn, timings=timings
    )


def equilibrium_contender(built: Built, rate: float) -> Contender:
    """The equilibrium network, with PyTorch's products: whoever multiplies, what settling costs."""
    return Contender.of(OURS, built.model(), rate, within=pytorch_products)


def warm_up(
    contender: Contender, built: Built, steps: int, on_step: Callable[[], None] = lambda: None
) -> None:
    """Let a contender make its first steps, in which things are compiled and allocated."""
    for _ in range(steps):
        contender.look(*built.draw())
        on_step()


def proof(ours: Contender, built: Built) -> Certificate:
    """A certificate at the contender's weights, of a batch of its own."""
    x, y = (t[:_CERTIFIED] for t in built.draw())
    with ours.within():
        return certify(_settling(ours), x, y, loss=cross_entropy)


def _settling(ours: Contender) -> EquilibriumModel:
    if not isinstance(ours.model, EquilibriumModel):
        raise AssertionError("ours is an equilibrium network")
    return ours.model


def bought_with(ours: Contender, network: Network, proofs: Sequence[Certificate]) -> dict[str, Any]:
    """In which regime the equilibrium network is: norms, steps and certificates."""
    norms = true_norms(_settling(ours))
    ratios = [t.norm_ratio for found in proofs for t in found.tensors]
    return {
        "label": network.label,
        "norm": max(norm for norm, _ in norms),
        "reach": min(reach for _, reach in norms),
        "steps": ours.mean_steps(),
        "residual": max(ours.residuals.values()),
        "cosine": min(found.min_cosine for found in proofs),
        "norm_ratio": max(ratios, key=lambda ratio: abs(ratio - 1)),
        "certificates": len(proofs),
        "passed": sum(found.ok for found in proofs),
    }


def others(network: Network, built: Built, steps: float, rate: float) -> list[Contender]:
    """All that the network is held against; ``steps`` are those of its free phase. All multiply
    with PyTorch's products, but for the same network as it runs where it has faster ones."""
    found = [Contender.of(AS_IT_RUNS, built.model(), rate)] if has_wide_products() else []
    if network.tol > DEFAULT_TOL:
        exact = built.model()
        exact.tol = DEFAULT_TOL
        found.append(Contender.of(DEFAULT, exact, rate, within=pytorch_products))
    for name, make in ((SIZE, built.same_size), (DEPTH, built.same_depth)):
        if make is not None:
            found.append(Contender.of(name, make(), rate))
            found.append(Contender.of(name + FUSED, make(), rate, fused=True))
    if built.rearranged is not None:
        found.append(Contender.of(REARRANGED, built.rearranged(), rate))
    unrolled = built.model()
    unrolled.gradient = UnrolledGradient(steps=math.ceil(steps))
    unrolled.on_failure = "ignore"  # it stops where it was told to, converged or not
    found.append(Contender.of(UNROLLED, unrolled, rate, within=pytorch_products))
    for method in METHODS if deq_available() else ():
        deep = DeepEquilibrium(built.model(), method, network.tol)
        found.append(Contender.of(f"torchdeq {method}", deep, rate, within=pytorch_products))
    return found


def _timing(contender: Contender, all_of_them: list[Contender], turn: int) -> Timing:
    ours, *rest = all_of_them
    runs = next((c for c in rest if c.name == AS_IT_RUNS), None)
    return Timing(
        contender.name,
        parameters(contender.model),
        1e3 * min(contender.times),
        1e3 * median(contender.times),
        1e3 * median(contender.cpu_times),
        min(ours.times) / min(contender.times),
        median(shares(ours, contender, turn)),
        None if runs is None else median(shares(runs, contender, turn)),
    )


def cross_entropy(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Of every position where there are several."""
    return F.cross_entropy(output.reshape(-1, output.shape[-1]), target.reshape(-1))


_SLOW = 1.0
"""Seconds in which all contenders have made one step."""

_LEAST, _CERTIFIED = 3, 32
"""Rounds a slow row gets at least; samples of the certificate."""
