"""Train for very many steps and see that memory stays flat.

Resident memory is read every so many steps; after a beginning in which caches fill, a straight line
is fitted. Run it from the top of the repository, and see exit code 0 or 1:

    python scripts/soak.py --steps 50000
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from robustness import record
from torch.nn import functional as F

import toreqprop as teq

BEGINNING = 0.2
"""Part of the steps in which memory may grow."""
ALLOWED = 8.0
"""Megabytes that the fitted line may rise from there to the end: what an allocator does by itself.
Losing 1 kB in every step would cost 40 MB over 50,000 steps."""


def models() -> dict[str, tuple[torch.nn.Module, torch.Tensor, torch.Tensor]]:
    """What is trained, in turn: a compiled path, a general one, convolutions."""
    x, y = torch.randn(32, 16), torch.randint(0, 4, (32,))
    images = torch.randn(8, 1, 8, 8)
    return {
        "looped": (teq.LoopedMLP(16, 32, 4), x, y),
        "looped, holomorphic": (teq.LoopedMLP(16, 32, 4, gradient=teq.HolomorphicEP()), x, y),
        "hopfield": (teq.HopfieldMLP([16, 24, 24, 4], on_failure="ignore"), x, y),
        "conv": (teq.HopfieldConvNet((1, 8, 8), (4,), 4, on_failure="ignore"), images, y[:8]),
    }


def resident() -> float:
    """Megabytes this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def soak(steps: int, every: int) -> list[tuple[int, float]]:
    """Steps of every model in turn; memory every so many of them."""
    torch.manual_seed(0)
    trained = models()
    optimizers = {
        name: torch.optim.Adam(m.parameters(), 1e-3) for name, (m, _, _) in trained.items()
    }
    names = list(trained)
    found, started = [], time.monotonic()
    for step in range(steps):
        name = names[step % len(names)]
        model, x, y = trained[name]
        optimizers[name].zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizers[name].step()
        if step % every == 0 or step == steps - 1:
            found.append((step, resident()))
            rate = (step + 1) / (time.monotonic() - started)
            print(f"step {step:>7,} of {steps:,}: {found[-1][1]:.1f} MB, {rate:.0f} steps/s")
    return found


def rise(found: list[tuple[int, float]]) -> float:
    """Megabytes that a line through the measurements rises after the beginning."""
    last = found[-1][0]
    kept = np.array([row for row in found if row[0] >= BEGINNING * last])
    slope = np.polyfit(kept[:, 0], kept[:, 1], 1)[0]
    return float(slope * (last - kept[0, 0]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--record", action="store_true", help="write results/robustness/soak.json")
    options = parser.parse_args()
    if options.steps < 100:
        parser.error("--steps must be >= 100, or there is no line to fit")
    torch.set_num_threads(1)
    found = soak(options.steps, max(1, options.steps // 100))
    risen = rise(found)
    flat = risen <= ALLOWED
    print(f"{'flat' if flat else 'NOT FLAT'}: {risen:+.2f} MB, allowed {ALLOWED:+.0f} MB")
    if options.record:
        memory = [{"step": step, "megabytes": round(size, 1)} for step, size in found]
        about = {"steps": options.steps, "models": list(models()), "beginning": BEGINNING}
        print(record("soak", {**about, "rise": risen, "allowed": ALLOWED, "memory": memory}))
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
