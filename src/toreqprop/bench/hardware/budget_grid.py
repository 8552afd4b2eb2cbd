"""The budget's predictions against measured gradient errors, over a grid of devices."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from toreqprop.bench.hardware.methods import BUDGET_SAMPLES, RECIPES, final_split
from toreqprop.energies.devices import Converter, Device
from toreqprop.evidence.job import Job, Record, Store
from toreqprop.evidence.provenance import provenance
from toreqprop.evidence.runner import Listener, run_jobs
from toreqprop.gradients import CenteredEP
from toreqprop.hardware.budget import budget
from toreqprop.hardware.limits import exact_gradient, flat, gradient
from toreqprop.models import on
from toreqprop.private_generator import noise_from

BOUND = 1.5
"""The factor within which predictions have to hold."""

COMMAND = "toreqprop hardware grid"

DRAWS = 20
"""Gradients at each β."""

FACTORS = (1 / 3, 1.0, 3.0)
"""Nudges, in units of the best."""


def _devices() -> dict[str, Device]:
    found = {}
    for rms, bits, average in itertools.product((0.0, 0.01, 0.1), (None, 8, 5), (1, 16)):
        if rms == 0 and (bits is None or average > 1):
            continue
        states = None if bits is None else Converter(bits)
        resolution = "analog" if bits is None else f"{bits} bit"
        name = f"noise {rms:g}, {resolution}, {average} reading(s)"
        found[name] = Device(read_noise=rms, states=states, average=average, settle=15)
    for offset in (0.01, 0.05):
        found[f"phase offset {offset:g}"] = Device(phase_offset=offset, settle=15)
    found["thermal noise 0.1, 16 readings"] = Device(
        thermal_noise=0.1, time_step=0.7, average=16, settle=20
    )
    found["up/down 30 %, noise 0.01"] = Device(up_down=0.3, read_noise=0.01, settle=15)
    found["drift 0.02"] = Device(drift=0.02, settle=15)
    return found


DEVICES = _devices()


@dataclass(frozen=True)
class GridPoint(Job):
    """One device of the grid, by its name."""

    device: str
    seed: int = 0
    draws: int = DRAWS

    @property
    def label(self) -> str:
        return re.sub(r"[^a-z0-9.]+", "-", f"budget-{self.device}-{self.seed}".lower())

    @property
    def cost(self) -> float:
        return 1.0 * DEVICES[self.device].average

    @property
    def module(self) -> str:
        return __name__

    def settings(self) -> dict[str, Any]:
        return {**asdict(self), "sizes": str(DEVICES[self.device])}

    def perform(self, report: Callable[[Any], None]) -> Record:
        return measure(self.device, self.seed, self.draws)

    def absent(self, reason: str, *, lost: bool) -> Record:
        return {"not_run": reason, "lost": lost}


def run_grid(
    output: Path,
    *,
    names: tuple[str, ...] = tuple(DEVICES),
    seed: int = 0,
    processes: int = 1,
    fresh: bool = False,
    listener: Listener[GridPoint] | None = None,
) -> dict[str, Any]:
    """Do what is missing of the grid, and return the report as plain data."""
    started = time.time()
    points = [GridPoint(name, seed) for name in names]
    found = run_jobs(points, Store(output / ".partial"), processes, listener, fresh=fresh).records
    rows = [
        {k: r[k] for k in ("device", "limit", "points")} for r in found.values() if "limit" in r
    ]
    ratios = [p["measured"] / p["predicted"] for row in rows for p in row["points"]]
    worst = max((max(r, 1 / r) for r in ratios), default=None)
    whole = len(rows) == len(names)
    passed = whole and worst is not None and worst <= BOUND
    return {
        **provenance(f"{COMMAND} --seed {seed}" if seed else COMMAND, started),
        "rows": rows,
        "worst_factor": worst,
        "bound": BOUND,
        "verdict": "PASS" if passed else "FAIL",
        "keys": {point.label: point.key for point in points},
    }


def measure(name: str, seed: int = 0, draws: int = DRAWS) -> dict[str, Any]:
    """Predicted and measured error of an untrained digits network at three nudges."""
    recipe, data = RECIPES["digits"], final_split("digits", seed)
    x, y = data.x[:BUDGET_SAMPLES], data.y[:BUDGET_SAMPLES]
    chip = on(DEVICES[name], recipe.network(seed))
    expected = budget(chip, x, y, loss=recipe.loss)
    exact = flat(exact_gradient(chip, x, y, recipe.loss))
    points = []
    for factor in FACTORS:
        beta = factor * expected.beta
        chip.gradient = CenteredEP(beta)
        with noise_from(torch.Generator().manual_seed(seed)):
            drawn = torch.stack([flat(gradient(chip, x, y, recipe.loss)) for _ in range(draws)])
        error = float((drawn - exact).square().sum(1).mean().sqrt() / exact.norm())
        points.append({"beta": beta, "predicted": expected.at(beta).error, "measured": error})
    return {"device": name, "limit": expected.limit.name, "points": points}
