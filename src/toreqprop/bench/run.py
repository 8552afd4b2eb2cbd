"""One run of the benchmark: a network trained on a task from a seed, and what is measured on it.

A `Run` holds every input of its measurement, so equal runs give equal measurements, whichever
process executes them and beside whatever else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from toreqprop.bench.arms import FeedForward, ablated, certificate
from toreqprop.bench.relaxation import relaxation_curves
from toreqprop.bench.settings import ModelName, ModelSettings, TaskSettings
from toreqprop.bench.unnudged import UnnudgedEP
from toreqprop.evidence.job import Job, Record
from toreqprop.gradients import CenteredEP, GradientEstimator, ImplicitGradient
from toreqprop.models import MODELS, EquilibriumModel
from toreqprop.solvers import Anderson
from toreqprop.tasks import Dataset, Task, get, rollout
from toreqprop.tasks.files import COLLECTIONS
from toreqprop.training import Epoch, fit, predict

Control = Literal["shuffled-labels", "no-nudge", "no-spectral-norm"]
CONTROLS: tuple[Control, ...] = get_args(Control)

EPISODES = 30
"""Real episodes over which a cloned policy is scored."""

CERTIFIED = 64
"""Training samples that certificates are made of: always the first."""

ADJOINT = Anderson(tol=1e-4, max_steps=300)
"""How the implicit gradient's linear system is solved: as exactly as by plain iteration, in a
fraction of its steps."""


@dataclass(frozen=True)
class Progress:
    """One epoch of a run is over."""

    epoch: int


@dataclass(frozen=True)
class Run(Job):
    """What is trained on what, from which seed.

    ``task`` is the row, ``control`` a negative control, ``variant`` a setting of EP and the value
    it has instead of the row's; ``detailed`` keeps curves and confusions for the figures.
    """

    task: str
    model: ModelName
    seed: int
    chosen: TaskSettings
    full: bool = False
    control: Control | None = None
    variant: tuple[str, float] | None = None
    detailed: bool = False

    @property
    def label(self) -> str:
        varied = None if self.variant is None else "{}-{:g}".format(*self.variant)
        parts = [self.task, self.control, varied, self.model, str(self.seed)]
        return "-".join(part for part in parts if part)

    @property
    def cost(self) -> float:
        # The same for all arms: those of one seed follow each other and share its data.
        return self.chosen.epochs * (10.0 if self.full else 1.0)

    @property
    def module(self) -> str:
        return __name__

    def settings(self) -> dict[str, Any]:
        files = COLLECTIONS[self.chosen.task].files if self.chosen.task in COLLECTIONS else ()
        return {**asdict(self), "data": {file.name: file.sha256 for file in files}}

    def perform(self, report: Callable[[Any], None]) -> Record:
        return execute(self, lambda epoch: report(Progress(epoch.epoch)))

    def absent(self, reason: str, *, lost: bool) -> Record:
        return {"not_run": reason, "lost": lost}


def execute(run: Run, on_epoch: Callable[[Epoch], None] | None = None) -> Record:
    """Train and measure; every wall-clock figure of the result is under its key ``timing``.

    The test data has one use here, to be predicted: learning curves are shown, never selected
    from, and the accuracy is that after the last epoch. Certificates are made before training,
    in the middle and after it, at the estimator's own β and tolerance.

    Raises:
        DataUnavailableError: the task's data cannot be had.
    """
    started = time.perf_counter()
    task = get(run.chosen.task)
    data = _load(run.chosen.task, run.seed, run.full)
    x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    test = torch.from_numpy(data.test_x), torch.from_numpy(data.test_y)
    if run.control == "shuffled-labels":
        generator = torch.Generator().manual_seed(run.seed)
        y = y[torch.randperm(len(y), generator=generator)]
    training = run.chosen.training(run.model, run.seed)
    if run.control == "no-nudge":
        # Decay would move the weights that, without a nudge, nothing else moves.
        training = replace(training, weight_decay=0.0)
    torch.manual_seed(run.seed)
    model = build(run, data, run.chosen.model(run.model))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    certified = run.model == "ep" and run.control is None
    certificates = [certificate(model, x[:CERTIFIED], y[:CERTIFIED])] if certified else []
    norms: list[float] = []
    middle = max(1, training.epochs // 2)

    def watched(epoch: Epoch) -> None:
        if isinstance(model, EquilibriumModel):
            norms.append(model.lipschitz())
        if certified and epoch.epoch in (middle, training.epochs):
            certificates.append(certificate(model, x[:CERTIFIED], y[:CERTIFIED]))
        if on_epoch is not None:
            on_epoch(epoch)

    history = fit(
        model, x, y, training, validation=test if run.detailed else None, on_epoch=watched
    )
    predicted = predict(model, test[0])
    rows = history.as_rows()
    seconds = [row.pop("seconds") for row in rows]
    record = {
        "run": asdict(run),
        "data": describe_data(data),
        "parameters": sum(p.numel() for p in model.parameters()),
        "accuracy": float((predicted == test[1]).double().mean()),
        "correct": int((predicted == test[1]).sum()),
        "relaxation": summarise_relaxation(rows, norms) if run.model == "ep" else None,
        "certificates": certificates,
        "change": changes(model, before),
        "policy": policy_return(model, task, data, run.seed),
        "timing": {
            "training_seconds": sum(seconds),
            "total_seconds": time.perf_counter() - started,
        },
    }
    if isinstance(model, EquilibriumModel):
        record["ablated"] = float((ablated(model, test[0]) == test[1]).double().mean())
    if run.detailed:
        record |= {
            "epochs": rows,
            "norms": norms,
            "confusion": confusion(test[1], predicted, data.classes),
            "curves": relaxation_curves(model, *test)
            if isinstance(model, EquilibriumModel) and run.model == "ep"
            else None,
        }
    return record


@lru_cache(maxsize=2)
def _load(task: str, seed: int, full: bool) -> Dataset:
    """The arms of a seed share their data, which takes longer to record than to train on."""
    return get(task).load(seed, full)


def build(run: Run, data: Dataset, settings: ModelSettings) -> nn.Module:
    """The untrained network of a run, drawn from torch's global generator."""
    chosen = run.chosen
    varied = dict([run.variant]) if run.variant is not None else {}
    sizes = (data.features, chosen.hidden, data.classes)
    if run.model in ("backprop", "shallow"):
        layers = chosen.twin if run.model == "backprop" else chosen.layers
        return FeedForward(*sizes, layers=layers, gain=settings.gain)
    if settings.beta is None or settings.tol is None:
        raise AssertionError("the settings of EP have a beta and a tolerance")
    gradient: GradientEstimator = CenteredEP(varied.get("beta", settings.beta))
    if run.control == "no-nudge":
        gradient = UnnudgedEP(settings.beta)
    if run.model == "implicit":
        gradient = ImplicitGradient(ADJOINT)
    kind = MODELS[chosen.network]
    options: dict[str, Any] = {
        **dict(chosen.options),
        "tol": settings.tol,
        "spectral_norm": run.control != "no-spectral-norm",
        "gradient": gradient,
        "on_failure": "ignore",  # counted and reported instead
    }
    if "max_steps" in varied:
        options["max_steps"] = int(varied["max_steps"])
    if chosen.network == "looped":
        options["gain"] = settings.gain
    return kind.for_rows(*sizes, layers=chosen.layers, **options)


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


def summarise_relaxation(rows: list[dict[str, Any]], norms: list[float]) -> dict[str, Any]:
    """Mean steps per relaxation, and the worst of everything else, over all of training.

    Norms are those of the map after every epoch; ``norm`` is the last.
    """
    return {
        "free_steps": float(np.mean([row["free_steps"] for row in rows])),
        "nudged_steps": float(np.mean([row["nudged_steps"] for row in rows])),
        "worst_residual": max(row["worst_residual"] for row in rows),
        "unconverged": sum(row["unconverged"] for row in rows),
        "relaxations": sum(row["relaxations"] for row in rows),
        "largest_norm": max(norms),
        "norm": norms[-1],
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
    return {
        "episodes": EPISODES,
        "mean_return": float(returns.mean()),
        "worst_return": float(returns.min()),
        "expert_return": _expert_return(task.name, seed),
    }


@lru_cache(maxsize=4)
def _expert_return(name: str, seed: int) -> float:
    task = get(name)
    assert task.environment is not None
    assert task.expert is not None
    return float(rollout(task.expert, task.environment, EPISODES, seed).mean())
