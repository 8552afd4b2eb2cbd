"""Peak memory of one training step, measured on the resident set of a process of its own.

The process trains one short step first, so that what is loaded or allocated once is in place. Then,
for each number of relaxation steps, it gives free memory back, resets the kernel's high-water mark
and trains one step; what counts is the mark above the resident set before that step.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from toreqprop.errors import UnsupportedModelError

METHODS = ("EP", "implicit", "checkpointed", "unrolled", "backprop")
LAYERED = ("EP, layers", "EP, passes", "unrolled, passes", "backprop, layers")
"""Of these the numbers are layers, or passes of a stack of `DEPTH` layers."""

BATCH, INPUTS, CLASSES = 64, 64, 10
LAYERED_BATCH = 512
"""So many that states and not weights decide."""

DEPTH, PASSES = 16, 10


def peaks(
    method: str, hidden: int, steps: tuple[int, ...], batch: int | None = None
) -> tuple[float, ...]:
    """Peak megabytes of one training step for each number of relaxation steps.

    The one measurement of memory there is: tracks, the study `toreqprop memory` and tests differ in
    what they ask it for.

    Raises:
        UnsupportedModelError: not on Linux, the only system that lets a process reset its mark.
    """
    if batch is None:
        batch = LAYERED_BATCH if method in LAYERED else BATCH
    return tuple(fresh_process(__name__, method, str(hidden), str(batch), *map(str, steps)))


def fresh_process(module: str, *words: str) -> Any:
    """What a module prints last when it is run for itself, as plain data.

    Raises:
        UnsupportedModelError: not on Linux.
    """
    if not sys.platform.startswith("linux"):
        raise UnsupportedModelError("Peak memory is measured through /proc: run this on Linux.")
    # Every tensor of some size gets pages of its own, which leave with it.
    settings = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", module, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=settings)
    return json.loads(done.stdout.splitlines()[-1])


def peak_of(step: Callable[[], None]) -> float:
    """How many megabytes more than before it the resident set had at most."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = process_status("VmRSS")
    step()
    return (process_status("VmHWM") - before) / 1024


def measure(method: str, hidden: int, batch: int, steps: tuple[int, ...]) -> list[float]:
    """Measure in this process, which must be a fresh one."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    # Inputs as small as these, see `_never_at_rest`.
    x, y = 1e-3 * torch.randn(batch, INPUTS), torch.randint(0, CLASSES, (batch,))
    trainers = {count: _trainer(method, hidden, count) for count in (2, *steps)}
    trainers[2](x, y)
    found = []
    for count in steps:
        found.append(peak_of(partial(trainers.pop(count), x, y)))
    return found


def _trainer(method: str, hidden: int, steps: int) -> Callable[[Any, Any], None]:
    """One training step of a network of its own: its gradients belong to the measurement."""
    import torch
    from torch.nn import functional as F

    from toreqprop.gradients import CenteredEP, ImplicitGradient, UnrolledGradient
    from toreqprop.models import BackpropMLP, LoopedMLP

    if method in LAYERED:
        model: Any = _layered(method, hidden, steps)
    elif method == "backprop":
        model = BackpropMLP(INPUTS, hidden, CLASSES)
    else:
        gradient = {
            "EP": CenteredEP(),
            "implicit": ImplicitGradient(),
            "unrolled": UnrolledGradient(steps),
            "checkpointed": UnrolledGradient(steps),
        }[method]
        model = LoopedMLP(
            INPUTS, hidden, CLASSES, spectral_norm=False, gradient=gradient, tol=1e-30,
            max_steps=steps, on_failure="ignore",
        )  # fmt: skip
        _never_at_rest(model)
        model.register_relaxation_hook(_expect(steps))
    forward = _checkpointed(model, steps) if method == "checkpointed" else model
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(x: Any, y: Any) -> None:
        optimizer.zero_grad()
        F.cross_entropy(forward(x.to(next(model.parameters()).dtype)), y).backward()
        optimizer.step()

    return step


def _layered(method: str, hidden: int, count: int) -> Any:
    """A stack that takes all of its passes, or plain layers for backpropagation."""
    from toreqprop.bench.depth import plain
    from toreqprop.gradients import CenteredEP, UnrolledGradient
    from toreqprop.models import HopfieldMLP

    layers, passes = (DEPTH, count) if method.endswith("passes") else (count, PASSES)
    if method == "backprop, layers":
        return plain(INPUTS, hidden, layers, CLASSES)
    gradient = UnrolledGradient(passes) if method == "unrolled, passes" else CenteredEP()
    given: dict[str, Any] = {
        "gradient": gradient, "tol": 1e-30, "max_steps": passes, "on_failure": "ignore",
    }  # fmt: skip
    if method == "EP, layers":
        return HopfieldMLP([INPUTS, *[hidden] * layers, CLASSES], radius=0.95, **given)
    # What settles to the last digit before its passes are used up is handed on to the general path,
    # which takes more memory: so close to the edge of stability, in double precision, none does.
    model = HopfieldMLP.deep(INPUTS, hidden, layers, CLASSES, radius=0.9999, **given).double()
    model.register_relaxation_hook(_expect(passes))
    return model


def _never_at_rest(model: Any) -> None:
    """Neurons that inhibit themselves with a weight of −1 swing for thousands of steps around an
    equilibrium that exists: every phase takes all its steps, and the exact gradient is defined."""
    import torch

    with torch.no_grad():
        model.recurrent.weight = -torch.eye(model.hidden_features)
        model.input.bias.zero_()


def _expect(steps: int) -> Callable[[str, Any], None]:
    def check(phase: str, solution: Any) -> None:
        if phase != "adjoint" and solution.steps != steps:
            raise AssertionError(f"asked for {steps} steps, took {solution.steps}")

    return check


def _checkpointed(model: Any, steps: int) -> Callable[[Any], Any]:
    """Backpropagation through the relaxation that keeps every √steps-th state and computes the
    others again."""
    from torch.utils.checkpoint import checkpoint

    from toreqprop.energies import System

    length = math.isqrt(steps - 1) + 1

    def forward(x: Any) -> Any:
        params = model.system_parameters()
        system = System.bind(model.field, x, params)
        (state,) = system.initial_state()

        def segment(start: Any, count: int) -> Any:
            for _ in range(count):
                (start,) = system.map((start,))
            return start

        done = 0
        while done < steps:
            count = min(length, steps - done)
            state = checkpoint(segment, state, count, use_reentrant=False)
            done += count
        return model.readout_from((state,))

    return forward


def process_status(name: str) -> int:
    """A figure of /proc/self/status in kB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    raise UnsupportedModelError(f"/proc/self/status has no {name}: run this on Linux.")


if __name__ == "__main__":
    sizes = [int(word) for word in sys.argv[2:]]
    print(json.dumps(measure(sys.argv[1], sizes[0], sizes[1], tuple(sizes[2:]))))
