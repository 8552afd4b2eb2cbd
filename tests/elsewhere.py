"""Jobs and functions for tests of work on other machines: workers import them by name."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import torch

from toreqprop.evidence import Job, Record


@dataclass(frozen=True)
class Draws(Job):
    """Numbers of torch's one generator, with a rest between them in which others could draw.

    With a ``folder`` the first worker that does it leaves its number there and waits, for ever, to
    be killed; the next one goes through.
    """

    seed: int
    folder: str | None = None

    @property
    def label(self) -> str:
        return f"draws-{self.seed}"

    @property
    def cost(self) -> float:
        return 1.0

    @property
    def module(self) -> str:
        return __name__

    def settings(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def perform(self, report: Callable[[Any], None]) -> Record:
        if self.folder is not None:
            mark = Path(self.folder, "worker")
            if not mark.exists():
                mark.with_suffix(".new").write_text(str(os.getpid()))
                mark.with_suffix(".new").rename(mark)
                while True:
                    time.sleep(0.01)
        torch.manual_seed(self.seed)
        found = []
        for _ in range(3):
            found.append(float(torch.rand(())))
            time.sleep(0.01)
        report("drawn")
        return {"draws": found, "threads": torch.get_num_threads()}

    def absent(self, reason: str, *, lost: bool) -> Record:
        return {"reason": reason, "lost": lost}


@dataclass(frozen=True)
class OtherCode(Draws):
    """Its key is another one whenever it is asked, as with a worker that has other code."""

    def settings(self) -> dict[str, Any]:
        return {"asked": next(_ASKED)}


_ASKED = count()
