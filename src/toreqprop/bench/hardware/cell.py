"""One cell of the sweep as a job: a method, a fault, a chip, and what it reached there."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from toreqprop.bench.hardware.faults import Fault
from toreqprop.bench.hardware.methods import (
    Method,
    Recipe,
    final_split,
    run,
    validation_split,
    wide_split,
)
from toreqprop.evidence.job import Job, Record
from toreqprop.tasks.files import COLLECTIONS

OTHER_CHIPS = 1000
"""Added to a seed: chips on which recipes are chosen, none of those they are tested on."""

DEPLOYED = ("clean EP", "clean backprop")
"""Methods that train once for every chip of a seed."""


@dataclass(frozen=True)
class Cell(Job):
    """A method trained for one chip and measured on it.

    ``held_out``: a trial of the search, measured on held-out training data and on another chip
    than any result; ``wide``: on more of them.
    """

    fault: Fault
    method: Method
    recipe: Recipe
    seed: int
    held_out: bool = False
    wide: bool = False

    @property
    def label(self) -> str:
        rate, epochs, feedback = self.recipe.tuned
        kind = "wide-trial" if self.wide else "trial"
        tried = f"{kind}-{rate:g}-{epochs}" if self.held_out else ""
        if self.held_out and feedback != 1:
            tried += f"-feedback-{feedback:g}"
        words = [self.recipe.task, self.fault.name, self.method, tried, str(self.seed)]
        return re.sub(r"[^a-z0-9.]+", "-", "-".join(w for w in words if w).lower())

    @property
    def cost(self) -> float:
        # Equal within a group: deployed networks of a seed follow each other and train once.
        if "backprop" in self.method or self.method in DEPLOYED:
            return 1.0
        device = self.fault.device
        return 2.0 + (0.1 * (device.settle + device.average) if device.moving else 0.0)

    @property
    def module(self) -> str:
        return __name__

    def settings(self) -> dict[str, Any]:
        task = self.recipe.task
        files = COLLECTIONS[task].files if task in COLLECTIONS else ()
        return {
            "fault": self.fault.name,
            "device": str(self.fault.device),
            "swap": self.fault.swap,
            "method": self.method,
            "recipe": asdict(self.recipe),
            "seed": self.seed,
            "held_out": self.held_out,
            "wide": self.wide,
            "data": {file.name: file.sha256 for file in files},
        }

    def perform(self, report: Callable[[Any], None]) -> Record:
        started = time.process_time()
        kind = "backprop" if "backprop" in self.method else "EP"
        held_out = wide_split if self.wide else validation_split
        found = run(
            self.method,
            self.fault.chip(self.seed + (OTHER_CHIPS if self.held_out else 0)),
            {kind: self.recipe},
            self.seed,
            held_out if self.held_out else final_split,
            {"swap": self.fault.swap},
        )
        spent = round(time.process_time() - started, 3)
        return {**found, "fault": self.fault.name, "timing": {"cpu_seconds": spent}}

    def absent(self, reason: str, *, lost: bool) -> Record:
        return {"not_run": reason, "lost": lost}
