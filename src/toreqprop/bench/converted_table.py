"""Sequential networks trained by EP: the measured table of the documentation.

Every network is certified as torch initialises it and after a short training; a step of it and one
of plain backpropagation through a copy of the network alternate on the same batches.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop.certificate import certify
from toreqprop.models import ConvertedNetwork, convert
from toreqprop.models.example_networks import NETWORKS, SHAPE
from toreqprop.tasks import get

FEEDBACKS = (0.3, 0.1, 0.01)
RATE = 3e-3


@dataclass(frozen=True)
class Setup:
    """What is measured, and how long for."""

    networks: tuple[str, ...] = tuple(NETWORKS)
    feedbacks: tuple[float, ...] = FEEDBACKS
    width: int = 8
    batch: int = 32
    steps: int = 40
    seed: int = 42

    def count(self) -> int:
        """How many rows that makes."""
        return len(self.networks) * len(self.feedbacks)


@dataclass(frozen=True)
class Row:
    """One network at one strength of feedback.

    ``free`` and ``nudged`` are sweeps, ``first`` the smallest cosine with the exact gradient over
    the tensors before training, ``cosine`` and ``backprop_cosine`` (with plain backpropagation)
    after it, ``time`` the median processor time of a step over backpropagation's, ``failures``
    the relaxations of the training that did not settle.
    """

    network: str
    layers: int
    parameters: int
    feedback: float
    free: int
    nudged: int
    first: float
    cosine: float
    backprop_cosine: float
    time: float
    failures: int
    ok: bool


@dataclass(frozen=True)
class Table:
    """The rows and the conditions they were measured under."""

    rows: tuple[Row, ...]
    conditions: str

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def measure(setup: Setup, on_row: Callable[[Row], None] = lambda row: None) -> Table:
    """Train and measure every network; the number of torch threads is the caller's choice."""
    data = get("digits").load(setup.seed, False)
    x, y = torch.from_numpy(data.train_x).reshape(-1, *SHAPE), torch.from_numpy(data.train_y)
    rows = []
    for name in setup.networks:
        for feedback in setup.feedbacks:
            torch.manual_seed(setup.seed)
            net = NETWORKS[name](setup.width, data.classes)
            rows.append(
                _row(name, convert(net, feedback=feedback, on_failure="ignore"), x, y, setup)
            )
            on_row(rows[-1])
    conditions = (
        f"digits, width {setup.width}, batch {setup.batch}, {setup.steps} steps of Adam({RATE:g}), "
        f"seed {setup.seed}, float32, threads: {torch.get_num_threads()}, "
        f"torch {torch.__version__}"
    )
    return Table(tuple(rows), conditions)


def _row(name: str, model: ConvertedNetwork, x: Tensor, y: Tensor, setup: Setup) -> Row:
    probe = (x[: setup.batch], y[: setup.batch])
    first = certify(model, *probe)
    ratio = _train(model, x, y, setup)
    failures = sum(model.failures.values())
    last = certify(model, *probe)
    if last.backprop_cosine is None:
        raise AssertionError("every converted network has a feed-forward twin")
    sweeps = {p.phase: p.steps for p in last.phases}
    return Row(
        name,
        len(model.neurons.ways),
        sum(p.numel() for p in model.parameters()),
        model.feedback,
        sweeps["free"],
        sweeps["nudged"],
        first.min_cosine,
        last.min_cosine,
        last.backprop_cosine,
        ratio,
        failures,
        first.ok and last.ok,
    )


def _train(model: ConvertedNetwork, x: Tensor, y: Tensor, setup: Setup) -> float:
    """Train the model, and a copy of its network by backpropagation, step by step in turn; the
    ratio of their median processor times."""
    rivals: Sequence[nn.Module] = (model, copy.deepcopy(model.net))
    optimizers = [torch.optim.Adam(m.parameters(), lr=RATE) for m in rivals]
    generator = torch.Generator().manual_seed(setup.seed)
    times: list[list[float]] = [[], []]
    for _ in range(setup.steps):
        batch = torch.randint(0, len(x), (setup.batch,), generator=generator)
        for kind, (network, optimizer) in enumerate(zip(rivals, optimizers, strict=True)):
            started = time.process_time()
            optimizer.zero_grad()
            F.cross_entropy(network(x[batch]), y[batch]).backward()
            optimizer.step()
            times[kind].append(time.process_time() - started)
    return statistics.median(times[0]) / statistics.median(times[1])


def render_markdown(table: Table) -> str:
    """The table as Markdown; computes nothing."""
    lines = [
        "| Network | Layers | Parameters | Feedback | Sweeps free / nudged | Worst cosine with the "
        "exact gradient, before / after training | Cosine with backpropagation | Step time over "
        "backpropagation | Relaxations that did not settle | Certified |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.network} | {r.layers} | {r.parameters} | {r.feedback:g} | {r.free} / {r.nudged} "
        f"| {r.first:.4f} / {r.cosine:.4f} | {r.backprop_cosine:.4f} | {r.time:.1f} "
        f"| {r.failures} | {'yes' if r.ok else 'no'} |"
        for r in table.rows
    ]
    return "\n".join([*lines, "", f"Measured on {table.conditions}."])
