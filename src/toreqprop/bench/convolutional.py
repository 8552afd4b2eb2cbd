"""Convolutional networks on all images: EP beside a backprop network of the same layers.

Settings were chosen on validation images alone; the test images are used once, at the end.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional as F

from toreqprop.certificate import certify
from toreqprop.energies import POOLINGS
from toreqprop.evidence import Measurement
from toreqprop.models import BackpropConvNet, EquilibriumModel, HopfieldConvNet
from toreqprop.tasks import Dataset, get
from toreqprop.training import Epoch, RelaxationMonitor, TrainingConfig, accuracy, fit

Method = Literal["ep", "backprop"]
METHODS: tuple[Method, ...] = ("ep", "backprop")
CERTIFIED_IMAGES = 64


@dataclass(frozen=True)
class ConvolutionalSettings:
    """A network and its training; the same for both methods, but for what only EP has."""

    channels: tuple[int, ...] = (16, 32)
    pooling: tuple[str, ...] = ("max", "average")
    epochs: int = 10
    batch_size: int = 64
    learning_rate: float = 6e-3
    weight_decay: float = 0.0
    tol: float = 1e-2

    def build(self, method: Method, image: tuple[int, int, int], classes: int) -> nn.Module:
        pooling = [POOLINGS[name]() for name in self.pooling]
        if method == "backprop":
            return BackpropConvNet(image, self.channels, classes, pooling=pooling)
        return HopfieldConvNet(image, self.channels, classes, pooling=pooling, tol=self.tol)

    def training(self, seed: int) -> TrainingConfig:
        return TrainingConfig(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            schedule="cosine",
            optimizer="adamw",
            seed=seed,
        )


@dataclass(frozen=True)
class ConvolutionalRun:
    """What one training measured. ``cpu_seconds`` is the process's own time on all its threads,
    which a busy machine does not stretch as it does ``seconds``."""

    task: str
    method: Method
    seed: int
    full: bool
    threads: int
    settings: dict[str, Any]
    parameters: int
    training_images: int
    test_images: int
    accuracy: float
    chance: float
    seconds: float
    cpu_seconds: float
    cpu_milliseconds_per_step: float
    epochs: list[dict[str, Any]]
    certificate: dict[str, Any] | None = None
    lipschitz: float | None = None
    checksums: dict[str, str] = field(default_factory=dict)


def run(
    task: str,
    method: Method,
    settings: ConvolutionalSettings,
    *,
    seed: int = 42,
    full: bool = True,
    on_epoch: Callable[[Epoch], None] | None = None,
) -> ConvolutionalRun:
    """Train on a task's images, then test once."""
    data = get(task).load(seed, full)
    x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    torch.manual_seed(seed)
    model = settings.build(method, image_shape(data), data.classes)
    started = time.process_time()
    history = fit(model, x, y, settings.training(seed), on_epoch=on_epoch)
    cpu = time.process_time() - started
    score = accuracy(model, torch.from_numpy(data.test_x), torch.from_numpy(data.test_y))
    certificate = None
    if isinstance(model, EquilibriumModel):
        certificate = certify(model, x[:CERTIFIED_IMAGES], y[:CERTIFIED_IMAGES])
    steps = settings.epochs * -(-len(x) // settings.batch_size)
    return ConvolutionalRun(
        task=task,
        method=method,
        seed=seed,
        full=full,
        threads=torch.get_num_threads(),
        settings=asdict(settings),
        parameters=sum(p.numel() for p in model.parameters()),
        training_images=len(x),
        test_images=len(data.test_y),
        accuracy=score,
        chance=data.chance,
        seconds=history.seconds,
        cpu_seconds=cpu,
        cpu_milliseconds_per_step=1e3 * cpu / steps,
        epochs=history.as_rows(),
        certificate=None if certificate is None else certificate.as_dict(),
        lipschitz=None if certificate is None else certificate.lipschitz,
        checksums=data.checksums,
    )


def image_shape(data: Dataset) -> tuple[int, int, int]:
    """One grey channel of square images."""
    side = round(data.features**0.5)
    return (1, side, side)


@dataclass(frozen=True)
class StepTimes:
    """Median processor time of one training step of each method, measured in turn."""

    settings: dict[str, Any]
    threads: int
    rounds: int
    milliseconds: dict[str, float]
    ratio: float
    free_steps: float | None
    nudged_steps: float | None


def step_times(settings: ConvolutionalSettings, rounds: int = 20, seed: int = 0) -> StepTimes:
    """Steps of EP and of backprop on random images, in turn, so that both see the same machine."""
    torch.manual_seed(seed)
    x = torch.randn(settings.batch_size, 784)
    y = torch.randint(0, 10, (settings.batch_size,))
    models = {method: settings.build(method, (1, 28, 28), 10) for method in METHODS}
    optimizers = {
        method: torch.optim.AdamW(model.parameters(), lr=settings.learning_rate)
        for method, model in models.items()
    }
    monitor = RelaxationMonitor()
    relaxing = models["ep"]
    if isinstance(relaxing, EquilibriumModel):
        relaxing.register_relaxation_hook(monitor)
    times: dict[str, list[float]] = {method: [] for method in METHODS}
    for _ in range(rounds):
        for method, model in models.items():
            started = time.process_time()
            optimizers[method].zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizers[method].step()
            times[method].append(1e3 * (time.process_time() - started))
    medians = {method: statistics.median(found) for method, found in times.items()}
    return StepTimes(
        asdict(settings),
        torch.get_num_threads(),
        rounds,
        medians,
        medians["ep"] / medians["backprop"],
        monitor.mean_steps("free"),
        monitor.mean_steps("nudged"),
    )


def measurements(
    tasks: Sequence[str],
    methods: Sequence[Method],
    seeds: Sequence[int],
    settings: ConvolutionalSettings,
    *,
    full: bool,
    timed: bool,
) -> list[Measurement]:
    """The study as jobs: every training, and the times of a step where asked."""
    plain = tuple(sorted(asdict(settings).items()))
    found = [
        Measurement(
            "convolutional",
            f"{task}, {method}, {'all' if full else '5k'}, {settings.epochs} epochs, seed {seed}",
            f"{__name__}:trained",
            (("task", task), ("method", method), ("seed", seed), ("full", full),
             ("settings", plain)),
            tasks=(task,),
            weight=3.0 if method == "ep" else 1.0,
        )
        for task in tasks
        for seed in seeds
        for method in methods
    ]  # fmt: skip
    if timed:
        job = Measurement(
            "convolutional", "time of a step", f"{__name__}:timed", (("settings", plain),)
        )
        found.append(job)
    return found


def trained(
    task: str, method: Method, seed: int, full: bool, settings: Iterable[tuple[str, Any]]
) -> dict[str, Any]:
    """One training as plain data, its times apart."""
    plain = asdict(run(task, method, _settings(settings), seed=seed, full=full))
    for epoch in plain["epochs"]:
        del epoch["seconds"]
    names = ("seconds", "cpu_seconds", "cpu_milliseconds_per_step")
    return {**plain, "timing": {name: plain.pop(name) for name in names}}


def timed(settings: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The times of a step as plain data: all of it is volatile."""
    return {"timing": asdict(step_times(_settings(settings)))}


def assembled(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the file of the study holds beside its origin."""
    runs = [each for each in found if "task" in each]
    times = [each["timing"] for each in found if "task" not in each]
    return {"runs": runs, **({"step_times": times[0]} if times else {})}


def _settings(plain: Iterable[tuple[str, Any]]) -> ConvolutionalSettings:
    given: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in plain}
    return ConvolutionalSettings(**given)
