"""``toreqprop plot``: one picture per command, from a network trained on the spot."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from toreqprop.errors import InvalidInputError

if TYPE_CHECKING:
    from torch import Tensor

    from toreqprop.gradients import GradientEstimator
    from toreqprop.models import EquilibriumModel

app = typer.Typer(
    no_args_is_help=True,
    help="Draw what a network does: settling, gradients, spectrum, learning curves.\n\n"
    "Example: toreqprop plot relaxation --output relaxation.svg",
)

TaskName = Annotated[str, typer.Option("--task", help="Task the network is trained on.")]
ModelName = Annotated[str, typer.Option("--model", help="looped or hopfield.")]
Hidden = Annotated[int, typer.Option(help="Neurons of a hidden layer.")]
Epochs = Annotated[int, typer.Option(help="Epochs of training before (or while) drawing.", min=0)]
Radius = Annotated[float, typer.Option(help="Bound on the recurrent norm.")]
Beta = Annotated[float | None, typer.Option(help="Strength of the nudge.")]
Rate = Annotated[float, typer.Option(help="Step size of the optimizer.")]
Seed = Annotated[int, typer.Option(help="Seed of data, weights and batches.")]


def _checked(path: Path | None) -> Path | None:
    """Refuse a file that cannot be written before anything is trained."""
    from toreqprop.plots.style import check_format

    if path is not None:
        check_format(path)
    return path


Output = Annotated[
    Path | None,
    typer.Option(help="File to write: .svg, .png or .pdf; default KIND.svg.", callback=_checked),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the plotted data instead.")]


@app.command()
def relaxation(
    task: TaskName = "digits",
    model: ModelName = "looped",
    hidden: Hidden = 64,
    epochs: Epochs = 3,
    radius: Radius = 0.9,
    beta: Beta = None,
    batch: Annotated[int, typer.Option(help="Test samples to relax.", min=1)] = 64,
    seed: Seed = 42,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Residual and energy against step, in the free and the nudged phases.

    \b
    Examples:
      toreqprop plot relaxation
      toreqprop plot relaxation --model hopfield --output r.png
    """
    from toreqprop import plots

    _check_drawing(output, as_json)
    net, x, y = _train(task, model, hidden, epochs, radius, seed, _nudged(beta))
    data = plots.relaxation_data(net, x[:batch], y[:batch])
    _deliver("relaxation", data, plots.relaxation_figure, output, as_json)


@app.command()
def trajectories(
    task: TaskName = "digits",
    model: ModelName = "looped",
    hidden: Hidden = 64,
    epochs: Epochs = 3,
    radius: Radius = 0.9,
    beta: Beta = None,
    sample: Annotated[int, typer.Option(help="Which test sample.")] = 0,
    seed: Seed = 42,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """The path of one state, projected to two dimensions, free and nudged.

    \b
    Examples:
      toreqprop plot trajectories
      toreqprop plot trajectories --sample 3 --beta 0.5
    """
    from toreqprop import plots

    _check_drawing(output, as_json)
    net, x, y = _train(task, model, hidden, epochs, radius, seed, _nudged(beta))
    data = plots.trajectory_data(net, x, y, sample=sample)
    _deliver("trajectories", data, plots.trajectory_figure, output, as_json)


@app.command()
def alignment(
    gradient: Annotated[
        list[str] | None, typer.Option(help="Estimator by name; repeat to compare several.")
    ] = None,
    task: TaskName = "digits",
    model: ModelName = "looped",
    hidden: Hidden = 64,
    epochs: Epochs = 3,
    radius: Radius = 0.9,
    beta: Beta = None,
    batch: Annotated[int, typer.Option(help="Samples in the certified batch.", min=1)] = 64,
    seed: Seed = 42,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Angle and size of each tensor's gradient against the exact one.

    \b
    Examples:
      toreqprop plot alignment
      toreqprop plot alignment --gradient coupled --beta 0.5
    """
    from toreqprop import plots
    from toreqprop.certificate import certify, estimator_by_name

    _check_drawing(output, as_json)
    net, x, y = _train(task, model, hidden, epochs, radius, seed, None)
    certificates = {}
    for name in gradient or ("one_sided", "centered", "holomorphic"):
        net.gradient = _with_beta(estimator_by_name(name)(), beta)
        found = certify(net, x[:batch], y[:batch])
        certificates[found.estimator] = found
    data = plots.alignment_data(certificates)
    _deliver("alignment", data, plots.alignment_figure, output, as_json)


@app.command()
def spectrum(
    task: TaskName = "digits",
    model: ModelName = "looped",
    hidden: Hidden = 64,
    epochs: Epochs = 8,
    radius: Radius = 0.9,
    learning_rate: Rate = 5e-3,
    every: Annotated[int, typer.Option(help="Training steps between two spectra.")] = 5,
    seed: Seed = 42,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Eigenvalues of the recurrent matrix during training, with the spectral bound and without.

    \b
    Examples:
      toreqprop plot spectrum
      toreqprop plot spectrum --learning-rate 0.05
    """
    from toreqprop import plots
    from toreqprop.training import TrainingConfig, fit

    _check_drawing(output, as_json)
    runs = {}
    for title, bounded in (("with the spectral bound", True), ("without it", False)):
        net, (x, y), _ = _network(task, model, hidden, radius, seed, None, spectral_norm=bounded)
        recorder = plots.SpectrumRecorder(x, every)
        recorder(net)
        config = TrainingConfig(epochs=epochs, learning_rate=learning_rate, seed=seed)
        fit(net, x, y, config, on_step=recorder)
        runs[title] = recorder.rows
    data = {"radius": radius, "runs": runs}
    _deliver("spectrum", data, lambda d: plots.spectrum(d["runs"], radius=radius), output, as_json)


@app.command()
def training(
    task: TaskName = "digits",
    model: ModelName = "looped",
    hidden: Hidden = 64,
    epochs: Epochs = 15,
    radius: Radius = 0.9,
    learning_rate: Rate = 5e-3,
    seed: Seed = 42,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Test accuracy and largest Lipschitz constant of each epoch, next to backpropagation.

    \b
    Examples:
      toreqprop plot training
      toreqprop plot training --task cartpole --epochs 5
    """
    import torch

    from toreqprop import plots
    from toreqprop.models import BackpropMLP
    from toreqprop.training import TrainingConfig, fit

    _check_drawing(output, as_json)
    config = TrainingConfig(epochs=epochs, learning_rate=learning_rate, seed=seed)
    runs = {}
    for title, bounded in (("EP, spectral bound", True), ("EP without it", False)):
        net, (x, y), test = _network(task, model, hidden, radius, seed, None, spectral_norm=bounded)
        runs[title] = fit(net, x, y, config, validation=test, watch_lipschitz=True)
    torch.manual_seed(seed)
    baseline = BackpropMLP(x.shape[1], hidden, int(y.max()) + 1)
    runs["backpropagation"] = fit(baseline, x, y, config, validation=test)
    _deliver("training", plots.training_data(runs), plots.training_figure, output, as_json)


def _check_drawing(output: Path | None, as_json: bool) -> None:
    """Refuse before anything is trained what could not be drawn."""
    from toreqprop.plots.style import need_matplotlib

    if output is not None or not as_json:
        need_matplotlib()


def _deliver(
    kind: str, data: Any, draw: Callable[[Any], Any], output: Path | None, as_json: bool
) -> None:
    """Print the data or write the figure; both where both were asked for."""
    from toreqprop import plots

    if as_json:
        typer.echo(json.dumps(data, indent=1, ensure_ascii=False))
        if output is None:
            return
    path = plots.save(draw(data), output or Path(f"{kind}.svg"))
    Console(stderr=True).print(f"wrote {path}", highlight=False)


def _nudged(beta: float | None) -> GradientEstimator | None:
    from toreqprop.certificate import estimator_by_name

    return None if beta is None else _with_beta(estimator_by_name("centered")(), beta)


def _with_beta(estimator: GradientEstimator, beta: float | None) -> GradientEstimator:
    if beta is None or not hasattr(estimator, "beta"):
        return estimator
    return replace(estimator, beta=beta)  # type: ignore[type-var]


def _train(
    task: str,
    model: str,
    hidden: int,
    epochs: int,
    radius: float,
    seed: int,
    gradient: GradientEstimator | None,
) -> tuple[EquilibriumModel, Tensor, Tensor]:
    """A trained network, with test inputs and targets."""
    from toreqprop.training import TrainingConfig, fit

    net, train, test = _network(task, model, hidden, radius, seed, gradient)
    if epochs > 0:
        fit(net, *train, TrainingConfig(epochs=epochs, learning_rate=5e-3, seed=seed))
    return net, *test


def _network(
    task: str,
    model: str,
    hidden: int,
    radius: float,
    seed: int,
    gradient: GradientEstimator | None,
    *,
    spectral_norm: bool = True,
) -> tuple[EquilibriumModel, tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """A fresh network with its training and its test data."""
    import torch

    from toreqprop.models import HopfieldMLP, LoopedMLP
    from toreqprop.tasks import get

    data = get(task).load(seed, False)
    torch.manual_seed(seed)
    options: dict[str, Any] = {
        "radius": radius,
        "gradient": gradient,
        "spectral_norm": spectral_norm,
        "on_failure": "ignore",
    }
    net: EquilibriumModel
    if model == "looped":
        net = LoopedMLP(data.features, hidden, data.classes, **options)
    elif model == "hopfield":
        net = HopfieldMLP([data.features, hidden, hidden, data.classes], **options)
    else:
        raise InvalidInputError(f"There is no model {model!r} to draw: choose looped or hopfield.")
    train = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    return net, train, (torch.from_numpy(data.test_x), torch.from_numpy(data.test_y))
