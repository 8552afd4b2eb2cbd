"""What several processes bring to one training: measured with two, planned for many.

A step of N processes takes as long as the slowest of them needs for its share, and then the sum of
the gradients. Three things are measured: the cost of a step against its batch, a + c·b; its spread
σ from batch to batch; and the cost of an all-reduce against its size between two processes,
2·(N − 1)·latency + 2·(N − 1)/N·bytes/bandwidth for the ring that gloo uses. The plan is

    t(N, b) = a + c·b + σ·√(2 ln N) + all-reduce(N),

the expected largest of N normal numbers in place of the mean. It is a plan for machines joined as
these two processes are, within one machine, unless told another latency and bandwidth.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.multiprocessing as mp
from torch import distributed
from torch.nn import functional as F

from toreqprop.tasks import get

WORKERS = (2, 8, 16, 32, 64, 128, 256, 512, 1024)
BATCHES = (8, 16, 32, 64)
SHARED = 64
SIZES = (1, 1 << 12, 1 << 16, 1 << 20, 1 << 22)
"""Numbers in an all-reduce, four bytes each."""


@dataclass(frozen=True)
class StepCost:
    """Seconds of processor time of a training step: ``base + per_sample · batch``, and its spread
    at the largest batch; ``points`` are the medians it was fitted to."""

    base: float
    per_sample: float
    spread: float
    points: dict[int, float]


@dataclass(frozen=True)
class ReduceCost:
    """An all-reduce between two processes, ``2·latency + bytes/bandwidth`` in seconds; ``points``
    are the medians, by bytes."""

    latency: float
    bandwidth: float
    points: dict[int, float]

    def seconds(self, workers: int, size: int) -> float:
        """A ring of so many workers summing ``size`` bytes."""
        ring = 2 * (workers - 1)
        return ring * self.latency + ring / workers * size / self.bandwidth


@dataclass(frozen=True)
class Planned:
    """So many workers: seconds of a step and how many times one process's speed, with the same
    batch for each (``weak``), and with one batch shared by all (``strong``)."""

    workers: int
    weak_seconds: float
    weak_speedup: float
    strong_batch: float
    strong_seconds: float
    strong_speedup: float


def measure_steps(
    model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, rounds: int
) -> StepCost:
    """Training steps of several batch sizes in turn, on one thread."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(0)
    times: dict[int, list[float]] = {batch: [] for batch in BATCHES}
    for number in range(rounds + 1):
        for batch in BATCHES:
            rows = torch.randperm(len(x), generator=generator)[:batch]
            started = time.process_time()
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
            if number:  # the first round also compiles
                times[batch].append(time.process_time() - started)
    points = {batch: float(np.median(found)) for batch, found in times.items()}
    per_sample, base = np.polyfit(list(points), list(points.values()), 1)
    return StepCost(max(float(base), 0.0), float(per_sample), _spread(times[BATCHES[-1]]), points)


def _spread(times: Sequence[float]) -> float:
    """A standard deviation that a pause of the machine does not decide: from the quartiles."""
    low, high = np.percentile(times, [25, 75])
    return float(high - low) / 1.349


def measure_reduce(rounds: int) -> ReduceCost:
    """All-reduces of several sizes between two new processes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "times.json")
        mp.spawn(_reduce, (str(Path(folder, "store")), str(path), rounds), nprocs=2)
        points = {int(k): v for k, v in json.loads(path.read_text()).items()}
    latency = points[4 * SIZES[0]] / 2
    largest = max(points)
    bandwidth = largest / max(points[largest] - 2 * latency, 1e-9)
    return ReduceCost(latency, bandwidth, points)


@dataclass(frozen=True)
class Trained:
    """One training by the command line: seconds spent in steps, test accuracy, training loss."""

    processes: int
    seconds: float
    accuracy: float
    loss: float


def train(processes: int, task: str, model: str, epochs: int, seed: int = 0) -> Trained:
    """`toreqprop train` in one process, or in several started by torchrun.

    Raises:
        RuntimeError: it failed, with what it said.
    """
    start = [] if processes == 1 else [
        "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes),
    ]  # fmt: skip
    words = ["-m", "toreqprop", "train", task, "--model", model, "--epochs", str(epochs)]
    words += ["--seed", str(seed), "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *start, *words], capture_output=True, text=True, env=environment
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    found = json.loads(done.stdout)
    return Trained(processes, found["training_seconds"], found["accuracy"], found["loss"])


def measure(
    task: str,
    model: str,
    *,
    epochs: int = 1,
    rounds: int = 2,
    steps: int = 20,
    seed: int = 0,
    latency: float | None = None,
    bandwidth: float | None = None,
    on_part: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Everything, as plain data: trainings of one and two processes in turn, costs, the plan."""
    from toreqprop.models import MODELS

    trainings = []
    for _ in range(rounds):
        for processes in (1, 2):
            trainings.append(train(processes, task, model, epochs, seed))
            on_part(f"processes: {processes}, seconds: {trainings[-1].seconds:.1f}")
    best = {n: min(t.seconds for t in trainings if t.processes == n) for n in (1, 2)}
    torch.manual_seed(seed)
    data = get(task).load(seed, False)
    network = MODELS[model].for_rows(data.features, 128, data.classes)
    x = network.arrange(torch.from_numpy(data.train_x))
    step = measure_steps(network, x, torch.from_numpy(data.train_y), steps)
    on_part(f"a step: {1e3 * step.base:.1f} ms and {1e3 * step.per_sample:.2f} ms a sample")
    measured = measure_reduce(10 * steps)
    reduce = ReduceCost(
        measured.latency if latency is None else latency,
        measured.bandwidth if bandwidth is None else bandwidth,
        measured.points,
    )
    size = 4 * sum(p.numel() for p in network.parameters() if p.requires_grad)
    return {
        "task": task,
        "model": model,
        "epochs": epochs,
        "trainings": [asdict(t) for t in trainings],
        "speedup": best[1] / best[2],
        "gradient_bytes": size,
        "step": asdict(step),
        "reduce": asdict(reduce),
        "assumed": {"latency": latency is not None, "bandwidth": bandwidth is not None},
        "batch": BATCHES[-1],
        "shared_batch": BATCHES[-1] * SHARED,
        "plan": [asdict(p) for p in plan(step, reduce, size, BATCHES[-1])],
    }


def _reduce(rank: int, store: str, path: str, rounds: int) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    points = {}
    for size in SIZES:
        values, times = torch.zeros(size), []
        for _ in range(rounds):
            distributed.barrier()
            started = time.perf_counter()
            distributed.all_reduce(values)
            times.append(time.perf_counter() - started)
        points[4 * size] = float(np.median(times))
    if rank == 0:
        Path(path).write_text(json.dumps(points))
    distributed.destroy_process_group()


def plan(
    step: StepCost, reduce: ReduceCost, size: int, batch: int, workers: Sequence[int] = WORKERS
) -> list[Planned]:
    """Both ways to use so many workers, with gradients of ``size`` bytes.

    Weak: every worker has ``batch`` samples of a step. Strong: all share `SHARED` times as many.
    """
    shared = batch * SHARED
    found = []
    for count in workers:
        wait = step.spread * math.sqrt(2 * math.log(count))
        sums = reduce.seconds(count, size)
        weak = step.base + step.per_sample * batch + wait + sums
        share = shared / count
        # Waiting is for the work of a share, and shrinks with it.
        strong = step.base + step.per_sample * share + wait * share / batch + sums
        found.append(
            Planned(
                count,
                weak,
                count * (step.base + step.per_sample * batch) / weak,
                share,
                strong,
                (step.base + step.per_sample * shared) / strong,
            )
        )
    return found
