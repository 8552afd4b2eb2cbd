"""Peak memory of one training step, measured on the resident set of a fresh process.

For every point a new process builds the network, trains one short step so that libraries and
optimizer state are in place, gives free memory back to the system, resets the kernel's high-water
mark and trains one step. What is reported is the mark above the resident set before that step.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from toreqprop.errors import UnsupportedModelError

STEPS = (10, 30, 100, 300, 1000)
HIDDEN = (128, 256, 512, 1024, 2048)
LAYERS = (1, 2, 4, 8, 16)
METHODS = ("TorEqProp", "unrolled", "torchdeq", "backprop")
BATCH, INPUTS, CLASSES = 1024, 64, 10
HIDDEN_OF_STEPS, STEPS_OF_HIDDEN, HIDDEN_OF_LAYERS = 512, 30, 256


@dataclass(frozen=True)
class Point:
    """Peak memory of one training step of a method, in MB, and the steps its free phase was given;
    of several ``layers`` the equilibrium takes as few of them as it needs."""

    method: str
    steps: int
    hidden: int
    peak_mb: float
    layers: int = 1


@dataclass(frozen=True)
class MemoryCurves:
    """Against relaxation steps (hidden size fixed), against hidden size and number of layers
    (steps fixed)."""

    against_steps: tuple[Point, ...]
    against_hidden: tuple[Point, ...]
    against_layers: tuple[Point, ...]
    conditions: dict[str, Any]

    def growth(self, method: str) -> float:
        """Peak at the most steps over peak at the fewest."""
        points = [p for p in self.against_steps if p.method == method]
        return points[-1].peak_mb / points[0].peak_mb

    def methods(self) -> list[str]:
        """What was measured."""
        return list(dict.fromkeys(p.method for p in self.against_steps))

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        growth = {m: self.growth(m) for m in self.methods()}
        return {**asdict(self), "growth_from_fewest_to_most_steps": growth}


def measure(
    steps: tuple[int, ...] = STEPS,
    hidden: tuple[int, ...] = HIDDEN,
    layers: tuple[int, ...] = LAYERS,
    on_point: Callable[[], None] | None = None,
) -> MemoryCurves:
    """All curves for every method, each point in its own process; torchdeq's where it is installed.

    Raises:
        UnsupportedModelError: not on Linux, the only system that lets a process reset its mark.
    """
    if not sys.platform.startswith("linux"):
        raise UnsupportedModelError("Peak memory is measured through /proc: run this on Linux.")

    def point(method: str, count: int, size: int, depth: int = 1) -> Point:
        found = in_new_process(method, count, size, depth)
        if on_point is not None:
            on_point()
        return found

    methods = available()
    return MemoryCurves(
        tuple(point(m, n, HIDDEN_OF_STEPS) for m in methods for n in steps),
        tuple(point(m, STEPS_OF_HIDDEN, n) for m in methods for n in hidden),
        tuple(point(m, STEPS_OF_HIDDEN, HIDDEN_OF_LAYERS, n) for m in methods for n in layers),
        {
            "batch": BATCH,
            "inputs": INPUTS,
            "hidden": HIDDEN_OF_STEPS,
            "steps": STEPS_OF_HIDDEN,
            "hidden_of_layers": HIDDEN_OF_LAYERS,
            "dtype": "float32",
            "threads": 1,
            "method": "VmHWM above VmRSS, a fresh process for each point",
        },
    )


def available() -> tuple[str, ...]:
    """The methods that can be measured here."""
    from toreqprop.bench.deq_baseline import deq_available

    return tuple(m for m in METHODS if m != "torchdeq" or deq_available())


def in_new_process(method: str, steps: int, hidden: int, layers: int = 1) -> Point:
    """`peak_of_one_step` in a process of its own."""
    command = [sys.executable, "-m", __name__, method, str(steps), str(hidden), str(layers)]
    # Every tensor its own mapping, given back when it is freed: the mark counts live memory only.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return Point(**json.loads(done.stdout))


def peak_of_one_step(method: str, steps: int, hidden: int, layers: int = 1) -> Point:
    """Measure in this process, which must be a fresh one."""
    import torch
    from torch.nn import functional as F

    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = torch.randn(BATCH, INPUTS), torch.randint(0, CLASSES, (BATCH,))
    taken: list[int] = []

    def step(count: int) -> None:
        model = models[count]
        optimizers[count].zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizers[count].step()

    # The short one pays for what is loaded or allocated once; each has its own weights, so that
    # gradients and optimizer state belong to the measured step, as they do in training.
    models = {count: _model(method, count, hidden, layers, taken) for count in (2, steps)}
    optimizers = {n: torch.optim.SGD(m.parameters(), lr=1e-3) for n, m in models.items()}
    step(2)
    taken.clear()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = process_status("VmRSS")
    step(steps)
    peak = process_status("VmHWM")
    if layers == 1 and any(count != steps for count in taken):
        raise AssertionError(f"asked for {steps} steps, took {taken}")
    return Point(method, steps, hidden, (peak - before) / 1024, layers)


def _model(method: str, steps: int, hidden: int, layers: int, taken: list[int]) -> Any:
    from toreqprop.bench.depth import plain
    from toreqprop.bench.deq_baseline import DeepEquilibrium
    from toreqprop.gradients import UnrolledGradient
    from toreqprop.models import HopfieldMLP

    if method == "backprop":
        # One hidden layer that is looped has as many weights as two that are not.
        return plain(INPUTS, hidden, layers if layers > 1 else 2, CLASSES)
    gradient = UnrolledGradient(steps) if method == "unrolled" else None
    if layers == 1:
        model = _looped(gradient, steps, hidden, taken)
    else:
        sizes = [INPUTS, *[hidden] * layers, CLASSES]
        model = HopfieldMLP(sizes, gradient=gradient, max_steps=steps, on_failure="ignore")
    # No residual is that small: it takes all of its steps.
    return DeepEquilibrium(model, "fixed point", 1e-30, steps) if method == "torchdeq" else model


def _looped(gradient: Any, steps: int, hidden: int, taken: list[int]) -> Any:
    import torch

    from toreqprop.models import LoopedMLP

    model = LoopedMLP(
        INPUTS, hidden, CLASSES, spectral_norm=False, gradient=gradient, tol=1e-30,
        max_steps=steps, on_failure="ignore",
    )  # fmt: skip
    with torch.no_grad():
        # A strong self-inhibition oscillates for ever: no phase ends before its last step.
        model.recurrent.weight = -3 * torch.eye(hidden)  # type: ignore[assignment]
    model.register_relaxation_hook(lambda phase, solution: taken.append(solution.steps))
    return model


def process_status(name: str) -> int:
    """A figure of /proc/self/status in kB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    raise UnsupportedModelError(f"/proc/self/status has no {name}: run this on Linux.")


def draw(curves: MemoryCurves, folder: Path) -> list[Path]:
    """Both curves side by side, as SVG and PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
    panels = (
        (axes[0], curves.against_steps, "steps", "relaxation steps"),
        (axes[1], curves.against_hidden, "hidden", "hidden size"),
        (axes[2], curves.against_layers, "layers", "layers"),
    )
    for axis, points, attribute, label in panels:
        for method, style in zip(METHODS, ("o-", "s--", "d-.", "^:"), strict=True):
            mine = [p for p in points if p.method == method]
            if not mine:
                continue
            axis.plot(
                [getattr(p, attribute) for p in mine],
                [p.peak_mb for p in mine],
                style,
                label=method,
            )
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel(label)
        axis.set_ylabel("peak memory of a training step, MB")
        axis.grid(True, alpha=0.3)
    axes[0].legend()
    paths = [folder / "memory.svg", folder / "memory.png"]
    for path in paths:
        figure.savefig(path, dpi=150)
    plt.close(figure)
    return paths


if __name__ == "__main__":
    print(json.dumps(asdict(peak_of_one_step(sys.argv[1], *map(int, sys.argv[2:])))))
