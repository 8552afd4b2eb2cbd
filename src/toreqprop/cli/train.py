"""``toreqprop train``: train a model on a task and say how well it did."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from toreqprop.certificate import estimator_by_name
from toreqprop.errors import InvalidInputError
from toreqprop.gradients import GradientEstimator
from toreqprop.kernels import reference
from toreqprop.models import BackpropMLP, HopfieldMLP, LoopedMLP
from toreqprop.solvers import SOLVERS
from toreqprop.tasks import Dataset, get
from toreqprop.training import Epoch, TrainingConfig, accuracy, fit

MODELS = ("looped", "hopfield", "backprop")


def train(
    task: Annotated[str, typer.Argument(help="digits, mnist, fashion, cartpole or acrobot.")] = (
        "digits"
    ),
    model: Annotated[str, typer.Option(help="looped, hopfield or backprop.")] = "looped",
    hidden: Annotated[int, typer.Option(help="Neurons of a hidden layer.")] = 128,
    layers: Annotated[int, typer.Option(help="Hidden layers of a hopfield model.")] = 2,
    epochs: Annotated[int, typer.Option(help="Passes over the training data.")] = 30,
    batch_size: Annotated[int, typer.Option(help="Samples per step.")] = 64,
    learning_rate: Annotated[float | None, typer.Option(help="Step size of the optimizer.")] = None,
    gradient: Annotated[str | None, typer.Option(help="Estimator by name; default: centred.")] = (
        None
    ),
    beta: Annotated[float | None, typer.Option(help="Strength of the nudge.")] = None,
    solver: Annotated[str | None, typer.Option(help="Solver by name.")] = None,
    radius: Annotated[float | None, typer.Option(help="Bound on the recurrent norm.")] = None,
    kernel: Annotated[
        str, typer.Option(help="auto, numba, torch, or numpy: the NumPy reference on its own.")
    ] = "auto",
    full: Annotated[bool, typer.Option("--full-data", help="All training images.")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Folder with data files.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of data, weights and batches.")] = 42,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Train on a built-in task by equilibrium propagation (or backpropagation, to compare).

    Examples: toreqprop train digits; toreqprop train mnist --hidden 256 --epochs 15;
    toreqprop train digits --kernel numpy; toreqprop train digits --gradient holomorphic
    """
    if data_dir is not None:
        os.environ["TOREQPROP_DATA"] = str(data_dir)
    if model not in MODELS:
        raise InvalidInputError(f"There is no model {model!r}: choose {', '.join(MODELS)}.")
    data = get(task).load(seed, full)
    started = time.perf_counter()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task(f"{task}, {model}", total=epochs)

        def advance(number: int, loss: float) -> None:
            progress.update(
                bar,
                completed=number,
                description=f"{task}, {model}: epoch {number}, loss {loss:.4f}",
            )

        if kernel == "numpy":
            if model != "looped":
                raise InvalidInputError("The NumPy reference is a looped model: --model looped.")
            result = _train_reference(
                data, hidden, epochs, batch_size, learning_rate, beta, radius, seed, advance
            )
        else:
            torch.manual_seed(seed)
            net = _build(model, data, hidden, layers, gradient, beta, solver, radius, kernel)
            config = TrainingConfig(
                epochs=epochs, batch_size=batch_size, learning_rate=learning_rate or 1e-3, seed=seed
            )

            def on_epoch(epoch: Epoch) -> None:
                advance(epoch.epoch, epoch.loss)

            x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
            history = fit(net, x, y, config, on_epoch=on_epoch)
            score = accuracy(net, torch.from_numpy(data.test_x), torch.from_numpy(data.test_y))
            result = {"accuracy": score, "loss": history.epochs[-1].loss, **_last(history.epochs)}
    result = {
        "task": task,
        "model": model,
        "kernel": kernel,
        "seed": seed,
        "chance": data.chance,
        **result,
        "seconds": time.perf_counter() - started,
    }
    if as_json:
        typer.echo(json.dumps(result, indent=2))
        return
    steps = ""
    if result.get("free_steps") is not None:
        steps = f", {result['free_steps']:.1f} free and {result['nudged_steps']:.1f} nudged steps"
    Console().print(
        f"{task}: test accuracy {100 * result['accuracy']:.2f} % "
        f"(chance {100 * data.chance:.1f} %), loss {result['loss']:.4f}{steps}, "
        f"{result['seconds']:.1f} s",
        highlight=False,
    )


def _build(
    model: str,
    data: Dataset,
    hidden: int,
    layers: int,
    gradient: str | None,
    beta: float | None,
    solver: str | None,
    radius: float | None,
    kernel: str,
) -> torch.nn.Module:
    if model == "backprop":
        return BackpropMLP(data.features, hidden, data.classes)
    options: dict[str, Any] = {}
    estimator: GradientEstimator | None = estimator_by_name(gradient or "centered")()
    if beta is not None and hasattr(estimator, "beta"):
        estimator = replace(estimator, beta=beta)  # type: ignore[type-var]
    if gradient is not None or beta is not None:
        options["gradient"] = estimator
    if solver is not None:
        if solver not in SOLVERS:
            raise InvalidInputError(
                f"There is no solver {solver!r}: choose one of {', '.join(SOLVERS)}."
            )
        options["solver"] = SOLVERS[solver]()
    if radius is not None:
        options["radius"] = radius
    if model == "hopfield":
        return HopfieldMLP([data.features, *[hidden] * layers, data.classes], **options)
    return LoopedMLP(data.features, hidden, data.classes, kernel=kernel, **options)  # type: ignore[arg-type]


def _train_reference(
    data: Dataset,
    hidden: int,
    epochs: int,
    batch_size: int,
    learning_rate: float | None,
    beta: float | None,
    radius: float | None,
    seed: int,
    advance: Any,
) -> dict[str, Any]:
    """Plain gradient descent in NumPy alone; see `kernels.reference`."""
    settings = reference.Settings()
    if beta is not None:
        settings = settings._replace(beta=beta)
    if radius is not None:
        settings = settings._replace(radius=radius)
    schedule = reference.Schedule(epochs=epochs, batch=batch_size, seed=seed)
    if learning_rate is not None:
        schedule = replace(schedule, rate=learning_rate)
    last = None
    for last in reference.train(
        data.train_x, data.train_y, hidden=hidden, settings=settings, schedule=schedule
    ):
        advance(last.number, last.loss)
    assert last is not None
    right = reference.predict(last.params, data.test_x, settings) == data.test_y
    return {"accuracy": float(right.mean()), "loss": last.loss}


def _last(epochs: list[Epoch]) -> dict[str, Any]:
    return {"free_steps": epochs[-1].free_steps, "nudged_steps": epochs[-1].nudged_steps}
