"""Every estimator on the same two networks: the measured table of the documentation."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.certificate import certify
from toreqprop.errors import UnsupportedModelError
from toreqprop.gradients import (
    ESTIMATORS,
    CenteredEP,
    GradientEstimator,
    OneSidedEP,
    VectorFieldEP,
)
from toreqprop.models import LoopedMLP
from toreqprop.tasks import get
from toreqprop.training import RelaxationMonitor, TrainingConfig, fit

RADIUS = 0.95
"""Strong recurrence: where it is weak, every estimator agrees with every other."""


@dataclass(frozen=True)
class Agreement:
    """Smallest cosine and the norm ratio farthest from one, over the hidden tensors."""

    cosine: float
    norm_ratio: float


@dataclass(frozen=True)
class Row:
    """One estimator: what it is and what was measured."""

    estimator: str
    bias: str
    symmetric: Agreement | None
    asymmetric: Agreement | None
    relaxations: int
    relative_time: float
    needs: str
    paper: str


@dataclass(frozen=True)
class Table:
    """The rows and the conditions they were measured under."""

    rows: tuple[Row, ...]
    conditions: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def variants() -> list[GradientEstimator]:
    """Every registered estimator at its defaults, and the variants worth a row of their own."""
    found: list[GradientEstimator] = []
    for cls in ESTIMATORS.values():
        found.append(cls())
        if cls is OneSidedEP:
            found.append(OneSidedEP(negative=True))
        if cls is VectorFieldEP:
            found.append(VectorFieldEP(correction=False))
    return found


def measure(
    seed: int = 42,
    hidden: int = 64,
    epochs: int = 5,
    repeats: int = 7,
    on_row: Callable[[Row], None] | None = None,
) -> Table:
    """Train one symmetric and one asymmetric network on digits, then measure every estimator.

    Cosines and norm ratios are taken against the float64 implicit gradient, at the estimator's
    defaults in float32; time is that of one forward and backward pass over `CenteredEP`'s, best
    of ``repeats``, both in one run.
    """
    data = get("digits").load(seed, False)
    x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    networks = []
    for symmetric in (True, False):
        torch.manual_seed(seed)
        model = LoopedMLP(data.features, hidden, data.classes, symmetric=symmetric, radius=RADIUS)
        fit(model, x, y, TrainingConfig(epochs=epochs, seed=seed))
        networks.append(model)
    batch = (x[:64], y[:64])
    rows = []
    for estimator in variants():
        agreements = [_agreement(net, estimator, batch) for net in networks]
        home = networks[0] if agreements[0] is not None else networks[1]
        monitor = RelaxationMonitor()
        key = home.register_relaxation_hook(monitor)
        _step(home, estimator, batch)
        home.remove_relaxation_hook(key)
        backward = [n for n in monitor.steps if n != "free"]
        row = Row(
            repr(estimator),
            type(estimator).bias,
            agreements[0],
            agreements[1],
            sum(len(monitor.steps[n]) for n in backward),
            _relative_time(home, estimator, batch, repeats),
            type(estimator).needs,
            type(estimator).paper,
        )
        rows.append(row)
        if on_row is not None:
            on_row(row)
    conditions = (
        f"LoopedMLP({data.features}, {hidden}, {data.classes}, radius={RADIUS}) after "
        f"{epochs} epochs on digits, seed {seed}, batch 64, float32, "
        f"tol {networks[0].tol:g}, torch {torch.__version__}"
    )
    return Table(tuple(rows), conditions)


def _agreement(
    model: LoopedMLP, estimator: GradientEstimator, batch: tuple[Tensor, Tensor]
) -> Agreement | None:
    trial = copy.deepcopy(model)
    trial.gradient = estimator
    try:
        certificate = certify(trial, *batch)
    except UnsupportedModelError:
        return None
    farthest = max(certificate.tensors, key=lambda t: abs(t.norm_ratio - 1))
    return Agreement(certificate.min_cosine, farthest.norm_ratio)


def _step(model: LoopedMLP, estimator: GradientEstimator, batch: tuple[Tensor, Tensor]) -> None:
    model.gradient = estimator
    model.zero_grad()
    F.cross_entropy(model(batch[0]), batch[1]).backward()


def _relative_time(
    model: LoopedMLP, estimator: GradientEstimator, batch: tuple[Tensor, Tensor], repeats: int
) -> float:
    reference: GradientEstimator = CenteredEP() if model.symmetric else VectorFieldEP()
    best = {0: float("inf"), 1: float("inf")}
    for _ in range(repeats):
        for k, which in enumerate((reference, estimator)):
            started = time.perf_counter()
            _step(model, which, batch)
            best[k] = min(best[k], time.perf_counter() - started)
    return best[1] / best[0]


def render_markdown(table: Table) -> str:
    """The table as Markdown; computes nothing."""

    def cell(agreement: Agreement | None) -> str:
        if agreement is None:
            return "not served"
        return f"{agreement.cosine:.4f} / {agreement.norm_ratio:.3f}"

    lines = [
        "| Estimator | Bias | Cosine / norm ratio, symmetric | Cosine / norm ratio, asymmetric "
        "| Relaxations in backward | Time | Needs | Source |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{r.estimator}` | {r.bias} | {cell(r.symmetric)} | {cell(r.asymmetric)} "
        f"| {r.relaxations} | {r.relative_time:.1f} | {r.needs} | {r.paper} |"
        for r in table.rows
    ]
    return "\n".join([*lines, "", f"Measured on {table.conditions}."])
