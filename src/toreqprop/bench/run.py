"""One run of the benchmark: a model trained on a task from a seed, and all that is measured on it.

A `Run` holds every input of its measurement, so equal runs give equal measurements, whichever
process executes them and beside whatever else.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from toreqprop.bench.hyperparameters import ModelName, ModelSettings, TaskSettings
from toreqprop.bench.relaxation import relaxation_curves
from toreqprop.bench.rows import task_of
from toreqprop.bench.unnudged import UnnudgedEP
from toreqprop.gradients import CenteredEP, GradientEstimator
from toreqprop.kernels import compiled_available
from toreqprop.models import BackpropMLP, HopfieldMLP, LoopedMLP
from toreqprop.tasks import Dataset, Task, rollout
from toreqprop.training import Epoch, fit, predict

Control = Literal["shuffled-labels", "no-nudge", "no-spectral-norm"]
CONTROLS: tuple[Control, ...] = get_args(Control)

EPISODES = 100
"""Real episodes over which a cloned policy is scored."""

MAX_STEPS = 100
TOLERANCE = 1e-3

SCHEMA = 1
"""Raised when the content of a measurement changes, so that older ones are not taken up again."""


@dataclass(frozen=True)
class Run:
    """What is trained on what, from which seed; ``control`` names a negative control."""

    task: str
    model: ModelName
    seed: int
    settings: TaskSettings
    full: bool = False
    control: Control | None = None

    @property
    def label(self) -> str:
        """What the live display and file names call it."""
        parts = [self.task, self.control, self.model, str(self.seed)]
        return "-".join(part for part in parts if part)

    @property
    def key(self) -> str:
        """A digest of everything the measurement depends on but the code."""
        software = {"torch": torch.__version__, "compiled": compiled_available()}
        content = {**asdict(self), **software, "schema": SCHEMA}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def execute(run: Run, on_epoch: Callable[[Epoch], None] | None = None) -> dict[str, Any]:
    """Train and measure; every wall-clock figure of the result is under its key ``timing``.

    The test data has one use here, to be predicted: learning curves are shown, never selected
    from, and the accuracy is that after the last epoch.

    Raises:
        DataUnavailableError: the task's data cannot be had.
    """
    started = time.perf_counter()
    task = task_of(run.task)
    data = task.load(run.seed, run.full)
    x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    test = torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)
    if run.control == "shuffled-labels":
        generator = torch.Generator().manual_seed(run.seed)
        y = y[torch.randperm(len(y), generator=generator)]
    settings = run.settings.model(run.model)
    training = run.settings.training(run.model, run.seed)
    if run.control == "no-nudge":
        # Decay would move the weights that, without a nudge, nothing else moves.
        training = replace(training, weight_decay=0.0)
    torch.manual_seed(run.seed)
    model = build(run, data, settings)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    history = fit(model, x, y, training, validation=test, on_epoch=on_epoch, watch_lipschitz=True)
    predicted = predict(model, test[0])
    rows = history.as_rows()
    epoch_seconds = [row.pop("seconds") for row in rows]
    return {
        "run": asdict(run),
        "key": run.key,
        "data": describe_data(data),
        "parameters": sum(p.numel() for p in model.parameters()),
        "accuracy": float((predicted == test[1]).double().mean()),
        "correct": int((predicted == test[1]).sum()),
        "confusion": confusion(test[1], predicted, data.classes),
        "epochs": rows,
        "relaxation": summarise_relaxation(rows) if run.model == "ep" else None,
        "curves": relaxation_curves(model, *test) if isinstance(model, LoopedMLP) else None,
        "change": changes(model, before),
        "policy": policy_return(model, task, data, run.seed),
        "timing": {
            "training_seconds": sum(epoch_seconds),
            "epoch_seconds": epoch_seconds,
            "total_seconds": time.perf_counter() - started,
        },
    }


def build(run: Run, data: Dataset, settings: ModelSettings) -> nn.Module:
    """The untrained model of a run, drawn from torch's global generator."""
    sizes = (data.features, run.settings.hidden, data.classes)
    if run.model == "backprop":
        return BackpropMLP(*sizes, gain=settings.gain)
    assert settings.beta is not None
    assert settings.radius is not None
    gradient: GradientEstimator = CenteredEP(settings.beta)
    if run.control == "no-nudge":
        gradient = UnnudgedEP(settings.beta)
    options: dict[str, Any] = {
        "spectral_norm": run.control != "no-spectral-norm",
        "radius": settings.radius,
        "gradient": gradient,
        "tol": TOLERANCE,
        "max_steps": MAX_STEPS,
        "on_failure": "ignore",  # counted and reported instead
    }
    if settings.layers is not None:
        hidden = [run.settings.hidden] * settings.layers
        feedback = 1.0 if settings.feedback is None else settings.feedback
        shape = [data.features, *hidden, data.classes]
        return HopfieldMLP(shape, feedback=feedback, **options)
    return LoopedMLP(*sizes, gain=settings.gain, **options)


def describe_data(data: Dataset) -> dict[str, Any]:
    """Sizes, chance level and checksums of the data of a run."""
    return {
        "train_samples": len(data.train_y),
        "test_samples": len(data.test_y),
        "features": data.features,
        "classes": data.classes,
        "chance": data.chance,
        "sha256": data.checksums,
    }


def confusion(truth: Tensor, predicted: Tensor, classes: int) -> list[list[int]]:
    """Counts of test samples, one row per true class, one column per predicted one."""
    flat = torch.bincount(truth * classes + predicted, minlength=classes * classes)
    return flat.reshape(classes, classes).tolist()


def summarise_relaxation(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean steps per relaxation, and the worst of everything else, over all of training."""
    return {
        "free_steps": float(np.mean([row["free_steps"] for row in rows])),
        "nudged_steps": float(np.mean([row["nudged_steps"] for row in rows])),
        "worst_residual": max(row["worst_residual"] for row in rows),
        "unconverged": sum(row["unconverged"] for row in rows),
        "largest_lipschitz": max(row["lipschitz"] for row in rows),
        "tolerance": TOLERANCE,
        "max_steps": MAX_STEPS,
    }


def changes(model: nn.Module, before: dict[str, Tensor]) -> dict[str, float]:
    """Largest change of any entry of each parameter during training."""
    return {
        name: float((p.detach() - before[name]).abs().max()) for name, p in model.named_parameters()
    }


def policy_return(
    model: nn.Module, task: Task, data: Dataset, seed: int
) -> dict[str, float | int] | None:
    """Mean return of the cloned policy and of its expert, from the same starts."""
    if task.environment is None or task.expert is None:
        return None

    def clone(observations: np.ndarray) -> np.ndarray:
        return predict(model, torch.from_numpy(data.normalise(observations))).numpy()

    returns = rollout(clone, task.environment, EPISODES, seed)
    expert = rollout(task.expert, task.environment, EPISODES, seed)
    return {
        "episodes": EPISODES,
        "mean_return": float(returns.mean()),
        "worst_return": float(returns.min()),
        "expert_return": float(expert.mean()),
    }
