"""What two threads and two processes gain: wall time of a training step at one global batch.

Every arrangement runs in processes of its own. With several, `DistributedDataParallel` averages
gradients over gloo, and each process has its share of the batch.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from toreqprop.errors import InvalidInputError

WIDTHS = (256, 1024)
BATCHES = (128, 1024)
"""Samples of a step in all: gradients that are sent take as long whatever the batch."""


@dataclass(frozen=True)
class Arrangement:
    """How many processes, and threads in each."""

    processes: int
    threads: int


ARRANGEMENTS = (Arrangement(1, 1), Arrangement(1, 2), Arrangement(2, 1))


@dataclass(frozen=True)
class Point:
    """Median wall time of a step of one network in one arrangement, and how much faster than in
    one process with one thread."""

    arm: str
    width: int
    batch: int
    processes: int
    threads: int
    milliseconds: float
    speed_up: float


def measure(
    widths: tuple[int, ...] = WIDTHS,
    batches: tuple[int, ...] = BATCHES,
    rounds: int = 100,
    arms: tuple[str, ...] | None = None,
    on_point: Callable[[], None] = lambda: None,
) -> list[Point]:
    """Every network in every arrangement."""
    from toreqprop.bench.time_to import LOOPED, TWO

    points: list[Point] = []
    for width, batch in itertools.product(widths, batches):
        for arm in arms or (LOOPED, TWO):
            alone = 0.0
            for each in ARRANGEMENTS:
                taken = _together(arm, width, batch, each, rounds)
                alone = alone or taken
                points.append(Point(arm, width, batch, **asdict(each), milliseconds=1e3 * taken,
                                    speed_up=alone / taken))  # fmt: skip
                on_point()
    return points


def _together(arm: str, width: int, batch: int, each: Arrangement, rounds: int) -> float:
    """The median step of the slowest process."""
    with tempfile.TemporaryDirectory() as folder:
        meeting = os.path.join(folder, "meeting")
        started = [
            subprocess.Popen(
                [sys.executable, "-m", __name__, arm, str(width), str(batch), str(rank),
                 str(each.processes), str(each.threads), str(rounds), meeting],
                stdout=subprocess.PIPE, text=True,
            )
            for rank in range(each.processes)
        ]  # fmt: skip
        try:
            said = [process.communicate()[0] for process in started]
        finally:
            for process in started:
                if process.poll() is None:
                    process.kill()
    if any(process.returncode for process in started):
        raise InvalidInputError("A process that trains ended with an error: see above.")
    return max(json.loads(text)["seconds"] for text in said)


def step_time(
    arm: str, width: int, batch: int, rank: int, processes: int, rounds: int, meeting: str
) -> float:
    """Median wall time of a step in this process, which trains on its share of the batch."""
    import torch
    from torch import distributed, nn
    from torch.nn import functional as F

    from toreqprop.bench import time_to
    from toreqprop.bench.speed_rows import Network, images

    share = batch // processes
    draw = images(Network("looped", share, width), seed=rank)
    torch.manual_seed(0)
    model: nn.Module = time_to.at_its_norm(time_to.Setup(width=width), arm, 784, 10)
    if processes > 1:
        where: dict[str, Any] = {"init_method": f"file://{meeting}", "rank": rank}
        distributed.init_process_group("gloo", world_size=processes, **where)
        # A ball's vectors follow from the weights, which are the same everywhere once the first
        # ones are: nothing has to be sent before a forward pass.
        model = nn.parallel.DistributedDataParallel(model, forward_sync_buffers=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    times = []
    for _ in range(rounds + rounds // 5):
        x, y = draw()
        start = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    if processes > 1:
        distributed.destroy_process_group()
    return sorted(times[rounds // 5 :])[rounds // 2]


if __name__ == "__main__":
    import torch

    arm, *numbers, meeting = sys.argv[1:]
    width, batch, rank, processes, threads, rounds = map(int, numbers)
    torch.set_num_threads(threads)
    found = step_time(arm, width, batch, rank, processes, rounds, meeting)
    print(json.dumps({"seconds": found}))
