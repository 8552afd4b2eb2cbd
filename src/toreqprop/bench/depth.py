"""Depth: equilibrium networks next to backpropagation's twins of the same depth.

Every run trains an equilibrium network and is scored on the whole test set; its twin has the same
layers, the same seed, the same data and the same optimizer. The gradient is certified at the
estimator's own β at first and after training.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from toreqprop.atomic import write_atomically
from toreqprop.certificate import certify
from toreqprop.errors import InvalidInputError
from toreqprop.evidence.statistics import Comparison, Summary, compare
from toreqprop.models import HopfieldMLP, LoopedMLP
from toreqprop.models.base import EquilibriumModel
from toreqprop.processes import perform_all
from toreqprop.tasks import get

TASKS = ("mnist", "fashion")
LOOPED = "looped"
NETWORKS = (LOOPED, "2", "4", "8")
"""One layer coupled to itself, or so many layers on top of each other."""

TWIN_START = "orthogonal"
"""How the twins of stacks start: of torch's usual weights and the orthogonal ones of stacks those
with the lower loss on held-out training images, at every depth (``results/depth_search.jsonl``)."""


@dataclass(frozen=True)
class Setup:
    """What is trained, and how, the same on both sides: Adam, with a rate that falls to zero, so
    that accuracies at the end are of the network more than of its last steps."""

    tasks: tuple[str, ...] = TASKS
    networks: tuple[str, ...] = NETWORKS
    seeds: int = 10
    width: int = 128
    epochs: int = 10
    batch: int = 64
    rate: float = 1e-3
    decay: bool = True
    first_seed: int = 42

    def runs(self) -> Iterator[tuple[str, str, int]]:
        """Task, network and seed of every run, seed by seed."""
        for seed in range(self.first_seed, self.first_seed + self.seeds):
            for task in self.tasks:
                for network in self.networks:
                    yield task, network, seed


@dataclass(frozen=True)
class Run:
    """One network and its twin, trained from one seed.

    Accuracies are those on the test set in percent. ``first`` and ``last`` are the smallest cosine
    over the tensors of EP's gradient with the exact one before and after training; ``reach`` is the
    largest norm of a coupling over what it may be, ``steps`` the passes of the free and the nudged
    phase in the last epoch, ``seconds`` processor time.
    """

    task: str
    network: str
    seed: int
    accuracy: float
    twin: float
    first: float
    last: float
    certified: bool
    reach: float
    steps: tuple[float, float]
    failures: int
    seconds: float
    twin_seconds: float


def build(
    setup: Setup, network: str, inputs: int, classes: int
) -> tuple[EquilibriumModel, nn.Module]:
    """An equilibrium network as by default, and plain layers of the same number."""
    width = setup.width
    if network == LOOPED:
        return LoopedMLP(inputs, width, classes), plain(inputs, width, 1, classes)
    layers = int(network)
    stack = HopfieldMLP([inputs, *[width] * layers, classes])
    return stack, plain(inputs, width, layers, classes, TWIN_START)


def plain(
    inputs: int, width: int, layers: int, classes: int, start: str = "usual"
) -> nn.Sequential:
    """Layers of tanh units for backpropagation; between them torch's usual weights, or the
    orthogonal ones that stacks have."""
    parts: list[nn.Module] = []
    for below in [inputs, *[width] * (layers - 1)]:
        parts += [nn.Linear(below, width), nn.Tanh()]
        if start == "orthogonal" and len(parts) > 2:
            nn.init.orthogonal_(parts[-2].weight)  # type: ignore[arg-type]
    return nn.Sequential(*parts, nn.Linear(width, classes))


def run(setup: Setup, task: str, network: str, seed: int) -> Run:
    """Train both sides from one seed."""
    data = get(task).load(seed, False)
    x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    torch.manual_seed(seed)
    model, _ = build(setup, network, x.shape[1], data.classes)
    torch.manual_seed(seed)
    _, twin = build(setup, network, x.shape[1], data.classes)
    steps: dict[str, list[int]] = {"free": [], "nudged": []}
    model.on_failure = "ignore"
    sample = x[: setup.batch], y[: setup.batch]
    before = certify(model, *sample)
    model.failures.clear()
    key = model.register_relaxation_hook(lambda phase, found: steps[phase].append(found.steps))
    seconds = train(setup, model, x, y, seed)
    model.remove_relaxation_hook(key)
    failures = sum(model.failures.values())
    twin_seconds = train(setup, twin, x, y, seed)
    after = certify(model, *sample)
    test = torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)
    epoch = -(-len(x) // setup.batch)
    last = [sum(counts[-epoch:]) / epoch for counts in steps.values()]
    return Run(
        task, network, seed, _accuracy(model, *test), _accuracy(twin, *test),
        before.min_cosine, after.min_cosine, before.ok and after.ok, max(reaches(model)),
        (last[0], last[1]), failures, seconds, twin_seconds,
    )  # fmt: skip


def train(setup: Setup, model: nn.Module, x: Tensor, y: Tensor, seed: int) -> float:
    """Train by ``loss.backward()``; returns the processor time."""
    optimizer = torch.optim.Adam(model.parameters(), lr=setup.rate)
    total = setup.epochs * -(-len(x) // setup.batch)
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total)
    order = torch.Generator().manual_seed(seed)
    started = time.process_time()
    for _ in range(setup.epochs):
        for rows in torch.randperm(len(x), generator=order).split(setup.batch):
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
            if setup.decay:
                falling.step()
    return time.process_time() - started


@torch.no_grad()
def _accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    parts = zip(x.split(500), y.split(500), strict=True)
    right = [(model(part).argmax(1) == labels).sum() for part, labels in parts]
    return 100.0 * float(torch.stack(right).sum()) / len(y)


@torch.no_grad()
def reaches(model: EquilibriumModel) -> list[float]:
    """``‖W‖₂/radius`` of everything that is kept in a ball."""
    found = []
    for module in model.modules():
        weight, radius = getattr(module, "weight", None), None
        for constraint in getattr(module, "constraints", ()):
            for part in constraint.modules():
                radius = getattr(part, "radius", radius)
        if isinstance(weight, Tensor) and radius is not None:
            found.append(float(torch.linalg.matrix_norm(weight.double(), 2)) / radius)
    return found


def measure(
    setup: Setup,
    path: Path,
    on_run: Callable[[Run], None] = lambda found: None,
    *,
    executor: Executor | str | None = None,
) -> list[Run]:
    """Every run of ``setup``; those in the file already are kept, new ones are added to it.

    An ``executor``, or the address of a dask scheduler, has them done elsewhere.
    """
    known = read(path, setup) if path.exists() else []
    done = {(r.task, r.network, r.seed): r for r in known}

    def keep(key: tuple[str, str, int], found: Run) -> None:
        done[key] = found
        content = {"setup": asdict(setup), "runs": [asdict(r) for r in done.values()]}
        write_atomically(path, json.dumps(content, indent=1))
        on_run(found)

    pending = []
    for key in setup.runs():
        if key in done:
            on_run(done[key])
        else:
            pending.append(key)
    if executor is None:
        for key in pending:
            keep(key, run(setup, *key))
    else:
        perform_all(
            {key: (run, (setup, *key)) for key in pending},
            1,
            lambda news: None,
            lambda key, future: keep(key, future.result()),
            executor=executor,
        )
    return [done[key] for key in setup.runs()]


def read(path: Path, setup: Setup) -> list[Run]:
    """The runs in a file.

    Raises:
        InvalidInputError: they were trained another way, or it is no such file.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text())
        kept: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in content["setup"].items()
        }
        stored = Setup(**kept)
        runs = [Run(**{**r, "steps": tuple(r["steps"])}) for r in content["runs"]]
    except (ValueError, TypeError, KeyError, AttributeError, OSError):
        raise InvalidInputError(
            f"{path} holds no runs that can be read: remove it, or choose another --output."
        ) from None
    wanted = replace(setup, tasks=stored.tasks, networks=stored.networks, seeds=stored.seeds)
    if stored != wanted:
        raise InvalidInputError(f"{path} holds runs of another setup: choose another --output.")
    return runs


def render_markdown(setup: Setup, runs: list[Run]) -> str:
    """One row for each task and network."""
    lines = [
        "| task | layers | seeds | EP % | backprop % | gap (95 % interval) | within 1 point "
        "| smallest cosine at first, after | certified both times | norm over radius | passes "
        "| processor time |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for task in setup.tasks:
        for network in setup.networks:
            own = [r for r in runs if (r.task, r.network) == (task, network)]
            found = compare([r.accuracy for r in own], [r.twin for r in own])
            time_ratio = sum(r.seconds for r in own) / sum(r.twin_seconds for r in own)
            free, nudged = (sum(r.steps[k] for r in own) / len(own) for k in (0, 1))
            lines.append(
                f"| {task} | {network} | {len(own)} | {_mean([r.accuracy for r in own]):.2f} "
                f"| {_mean([r.twin for r in own]):.2f} "
                f"| {_interval(found.gap)} | {_verdict(found)} "
                f"| {min(r.first for r in own):.3f}, {min(r.last for r in own):.3f} "
                f"| {sum(r.certified for r in own)} of {len(own)} "
                f"| {min(r.reach for r in own):.2f} to {max(r.reach for r in own):.2f} "
                f"| {free:.1f} + {nudged:.1f} | {time_ratio:.1f} |"
            )
    return "\n".join(lines)


def _interval(gap: Summary) -> str:
    return f"{gap.mean:+.2f}" + ("" if gap.low is None else f" [{gap.low:+.2f}, {gap.high:+.2f}]")


def _verdict(found: Comparison) -> str:
    return "shown" if found.equivalent else "not shown"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
