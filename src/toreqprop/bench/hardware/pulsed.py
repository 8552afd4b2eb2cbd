"""Weights programmed by pulses: digits on every device, with and without a remedy."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from toreqprop.bench.hardware.methods import Split, final_split, validation_split
from toreqprop.errors import InvalidInputError, LostWorkError
from toreqprop.evidence.job import Job, Record, Store
from toreqprop.evidence.provenance import provenance
from toreqprop.evidence.runner import Listener, run_jobs
from toreqprop.evidence.statistics import summarise
from toreqprop.hardware.presets import PRESETS
from toreqprop.hardware.pulsed import PulsedUpdates, TikiTaka
from toreqprop.hardware.pulses import PulsedDevice, SoftBounds
from toreqprop.models import HopfieldMLP
from toreqprop.training import accuracy, minibatches

TASK = "digits"
HIDDEN, BATCH, EPOCHS = 32, 32, 5
SHARPNESS = 4.0
"""Outputs are states between −1 and 1; so many times them are the logits."""

RATES, TRANSFERS = (0.1, 0.3, 1.0), (0.005, 0.05)
SEARCH_SEED, SEEDS = 100, 5

COMMAND = "toreqprop hardware pulsed"


def asymmetric(seed: int = 0) -> PulsedDevice:
    """No published device: asymmetry alone."""
    return PulsedDevice(SoftBounds(), dw_min=0.005, up_down=0.3, up_down_dtod=0.1, seed=seed)


DEVICES: dict[str, Callable[..., PulsedDevice] | None] = {
    "exact": None,
    "exact, lower layer frozen": None,
    "asymmetric": asymmetric,
    **PRESETS,
}
"""By name; None is plain gradient descent."""


@dataclass(frozen=True)
class PulsedRun(Job):
    """A network trained by pulses to the seed's own sample of a device.

    ``transfer`` is the rate of Tiki-Taka, None no remedy; ``held_out``: a trial of the search, on
    held-out training data.
    """

    device: str
    rate: float
    transfer: float | None
    seed: int
    epochs: int = EPOCHS
    held_out: bool = False

    @property
    def label(self) -> str:
        remedy = "" if self.transfer is None else f"tiki-taka-{self.transfer:g}"
        tried = "trial" if self.held_out else ""
        words = ["pulsed", self.device, remedy, tried, f"{self.rate:g}", str(self.seed)]
        return re.sub(r"[^a-z0-9.]+", "-", "-".join(w for w in words if w).lower())

    @property
    def cost(self) -> float:
        return 1.0

    @property
    def module(self) -> str:
        return __name__

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    def perform(self, report: Callable[[Any], None]) -> Record:
        started = time.process_time()
        data = (validation_split if self.held_out else final_split)(TASK, self.seed)
        found = accuracy(trained(self, data), data.held_x, data.held_y)
        spent = round(time.process_time() - started, 3)
        return {"accuracy": 100 * found, "timing": {"cpu_seconds": spent}}

    def absent(self, reason: str, *, lost: bool) -> Record:
        return {"not_run": reason, "lost": lost}


def network(data: Split, generator: torch.Generator) -> HopfieldMLP:
    """All of it neurons; what is written stays in the ball of the proven bound."""
    sizes = [data.x.shape[1], HIDDEN, int(data.y.max()) + 1]
    return HopfieldMLP(
        sizes, output="free", bound="proven", on_failure="ignore", generator=generator
    )


def optimizer(run: PulsedRun, model: HopfieldMLP) -> torch.optim.Optimizer:
    """Plain gradient descent, or pulses."""
    build, params = DEVICES[run.device], list(model.parameters())
    if build is None:
        frozen = model.layers[0].parameters() if run.device.endswith("frozen") else ()
        left = {id(p) for p in frozen}
        return torch.optim.SGD([p for p in params if id(p) not in left], run.rate)
    remedy = None if run.transfer is None else TikiTaka(rate=run.transfer)
    return PulsedUpdates(params, build(run.seed), run.rate, remedy=remedy, seed=run.seed)


def trained(run: PulsedRun, data: Split) -> HopfieldMLP:
    """The network of a run after its epochs."""
    generator = torch.Generator().manual_seed(run.seed)
    model = network(data, generator)
    descent = optimizer(run, model)
    for _ in range(run.epochs):
        for batch in minibatches(len(data.x), BATCH, generator):
            descent.zero_grad()
            loss(model(data.x[batch]), data.y[batch]).backward()
            descent.step()
    return model


def loss(output: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(SHARPNESS * output, target)


def has_symmetric_point(name: str) -> bool:
    """Whether Tiki-Taka has something to be relative to."""
    build = DEVICES[name]
    if build is None:
        return False
    try:
        build().draw((1,)).symmetric_point()
    except InvalidInputError:
        return False
    return True


def trials(name: str, remedy: bool, epochs: int) -> list[PulsedRun]:
    """Every setting of a device, on held-out training data."""
    transfers = TRANSFERS if remedy else (None,)
    return [
        PulsedRun(name, rate, transfer, SEARCH_SEED, epochs, held_out=True)
        for rate, transfer in itertools.product(RATES, transfers)
    ]


def run_pulsed(
    output: Path,
    *,
    names: tuple[str, ...] = tuple(DEVICES),
    seeds: int = SEEDS,
    seed: int = 0,
    epochs: int = EPOCHS,
    processes: int = 1,
    fresh: bool = False,
    listener: Listener[PulsedRun] | None = None,
) -> dict[str, Any]:
    """Do what is missing, and return the report as plain data.

    Raises:
        LostWorkError: the process of a run was killed twice.
    """
    started, store = time.time(), Store(output / ".partial")
    kinds = [(n, r) for n in names for r in ((False, True) if has_symmetric_point(n) else (False,))]
    tried = {kind: trials(*kind, epochs) for kind in kinds}
    searched = _done([t for ts in tried.values() for t in ts], store, processes, listener, fresh)
    best = {k: max(ts, key=lambda t: float(searched[t]["accuracy"])) for k, ts in tried.items()}
    tested = {
        kind: [
            PulsedRun(b.device, b.rate, b.transfer, s, epochs) for s in range(seed, seed + seeds)
        ]
        for kind, b in best.items()
    }
    found = _done([t for ts in tested.values() for t in ts], store, processes, listener, fresh)
    rows = [
        _row(best[kind], {t: searched[t] for t in tried[kind]}, {t: found[t] for t in tested[kind]})
        for kind in kinds
    ]
    about = {"network": f"64-{HIDDEN}-10, outputs among the neurons", "epochs": epochs}
    keys = {run.label: run.key for run in (*searched, *found)}
    return {**provenance(COMMAND, started), **about, "seeds": seeds, "rows": rows, "keys": keys}


def _done(
    runs: list[PulsedRun],
    store: Store,
    processes: int,
    listener: Listener[PulsedRun] | None,
    fresh: bool,
) -> dict[PulsedRun, Record]:
    outcome = run_jobs(runs, store, processes, listener, fresh=fresh)
    for reason in outcome.lost.values():
        raise LostWorkError(reason)
    return outcome.records


def _row(
    best: PulsedRun, tried: Mapping[PulsedRun, Record], found: Mapping[PulsedRun, Record]
) -> dict[str, Any]:
    return {
        "device": best.device,
        "remedy": best.transfer is not None,
        "rate": best.rate,
        "transfer": best.transfer,
        "test": asdict(summarise([r["accuracy"] for r in found.values()])),
        "search": [
            {"rate": t.rate, "transfer": t.transfer, "held_out": r["accuracy"]}
            for t, r in tried.items()
        ],
    }
