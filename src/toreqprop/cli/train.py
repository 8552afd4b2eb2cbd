"""``toreqprop train``: train a model on a task or a file, keep it, and say how well it did."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from toreqprop.cli import names
from toreqprop.cli.defaults import Choice, choose, exhausted
from toreqprop.errors import InvalidInputError
from toreqprop.table_defaults import CLASSES, NUMBERS

if TYPE_CHECKING:
    from toreqprop.cli.predictor import Predictor
    from toreqprop.cli.resume import Output
    from toreqprop.cli.samples import Samples
    from toreqprop.data_parallel import Group
    from toreqprop.training import Epoch, Loss, TrainerState, TrainingConfig


def _usual(name: str) -> str:
    kinds = dict.fromkeys(getattr(each, name) for each in (CLASSES, NUMBERS))
    return f"By default {getattr(Choice(), name)}, for files {' or '.join(map(str, kinds))}."


FILE_FRACTION = 0.2
"""Rows of a file that are held out unless the user says otherwise; tasks have test data."""


def train(
    data: Annotated[
        str, typer.Argument(help="A task (see `toreqprop info`), a CSV file or an NPZ file.")
    ] = "digits",
    target: Annotated[
        str | None,
        typer.Option(help="What to predict: a column (else the last), or an array (else y)."),
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(help="A column to leave out; may be repeated.")
    ] = None,
    regression: Annotated[
        bool | None,
        typer.Option(
            "--regression/--classification",
            help="Numbers or classes; by default numbers if the target has a decimal fraction.",
        ),
    ] = None,
    validation_fraction: Annotated[
        float | None,
        typer.Option(help="Part of the training data held out; by default 0.2 of a file's rows."),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            help="A model's name (see `toreqprop info`).",
            autocompletion=names.starting(names.MODELS),
        ),
    ] = "looped",
    hidden: Annotated[
        int | None, typer.Option(help=f"Neurons of a hidden layer. {_usual('hidden')}")
    ] = None,
    layers: Annotated[int | None, typer.Option(help="Hidden layers, where it can vary.")] = None,
    gradient: Annotated[
        str | None,
        typer.Option(help="Estimator by name.", autocompletion=names.starting(names.ESTIMATORS)),
    ] = None,
    beta: Annotated[float | None, typer.Option(help="Strength of the nudge.")] = None,
    solver: Annotated[
        str | None,
        typer.Option(help="Solver by name.", autocompletion=names.starting(names.SOLVERS)),
    ] = None,
    radius: Annotated[float | None, typer.Option(help="Bound on the recurrent norm.")] = None,
    bound: Annotated[
        str | None, typer.Option(help="How it is kept: tight, proven or exact.")
    ] = None,
    feedback: Annotated[
        float | None, typer.Option(help="Strength of the way down between layers, of stacks.")
    ] = None,
    tol: Annotated[float | None, typer.Option(help="Relative residual of relaxations.")] = None,
    max_steps: Annotated[int | None, typer.Option(help="Evaluations per relaxation.")] = None,
    kernel: Annotated[
        str | None, typer.Option(help="auto, numba, torch, or numpy: the NumPy reference alone.")
    ] = None,
    device: Annotated[
        Path | None, typer.Option(help="TOML file of a chip: train in place, on it.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help=f"Passes over the training data. {_usual('epochs')}")
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            help="Stop after so many epochs without a lower validation loss, 0 never; by default "
            f"{CLASSES.patience} for files whose --epochs is not given."
        ),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help=f"Samples per step. {_usual('batch_size')}")
    ] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Step size of the optimizer.")] = None,
    weight_decay: Annotated[
        float | None, typer.Option(help="L2 penalty; some for files, none for tasks by default.")
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            help="Learning rate: constant or cosine; by default constant, for files of classes "
            "whose --epochs is not given cosine."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder of the checkpoint, written after every epoch.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue from the checkpoint in --output, if there is one."),
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Replace the checkpoint in --output.")
    ] = False,
    tensorboard: Annotated[Path | None, typer.Option(help="Folder for TensorBoard logs.")] = None,
    full: Annotated[bool, typer.Option("--full-data", help="All training images.")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Folder with data files.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of data, weights and batches.")] = 42,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Train by equilibrium propagation (or backpropagation, to compare) and save the model.

    Ended at any moment, the same command with --resume continues from the last finished epoch, with
    the weights an uninterrupted run would have had, bit for bit.

    \b
    Examples:
      toreqprop train digits
      toreqprop train flowers.csv --target species --output flowers
      toreqprop train flowers.csv --target species --output flowers --resume
      toreqprop train prices.npz --regression --model hopfield --layers 3
      toreqprop train digits --gradient holomorphic --solver anderson
      toreqprop train digits --model hopfield --device chip.toml --beta 0.2
      torchrun --nproc-per-node 2 -m toreqprop train mnist --model conv --output m
    """
    import torch

    from toreqprop.cli import networks, samples
    from toreqprop.cli.numpy_training import train_reference
    from toreqprop.cli.predictor import labels_of, predictor_for
    from toreqprop.cli.resume import Output
    from toreqprop.cli.training_log import TrainingLog
    from toreqprop.data_parallel import joined
    from toreqprop.training import TrainingConfig

    started = time.perf_counter()
    networks.check_network(model)
    leads = os.environ.get("RANK", "0") == "0"
    # Only one of several processes reads and writes checkpoints.
    where = Output(output, resume, fresh) if leads else Output(None, False, False)
    where.check()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and (kernel == "numpy" or device is not None):
        raise InvalidInputError(
            "--kernel numpy and --device train in one process: leave out torchrun."
        )
    fraction = _fraction(data, validation_fraction)
    found = _read(data, target, drop or [], regression, fraction, full, data_dir, seed)
    labels = labels_of(found)
    asked = {
        "hidden": hidden, "epochs": epochs, "batch_size": batch_size, "patience": patience,
        "learning_rate": learning_rate, "weight_decay": weight_decay, "beta": beta,
        "radius": radius, "schedule": schedule,
    }  # fmt: skip
    usual = choose(
        asked, model, len(found.train[0]),
        table=not samples.is_task(data), numbers=found.regression,
        held_out=found.validation is not None,
    )  # fmt: skip
    if kernel == "numpy":
        if (
            model != "looped"
            or gradient
            or solver
            or device
            or output
            or tensorboard
            or found.regression
        ):
            raise InvalidInputError(
                "The NumPy reference trains a looped model of its own: use --kernel numpy with "
                "classes and without --model, --gradient, --solver, --device, --output and "
                "--tensorboard."
            )
        with TrainingLog(f"{found.name}, NumPy", usual.epochs, 0, None) as log:
            result = train_reference(
                found, labels, usual.hidden, usual.epochs, usual.batch_size, learning_rate,
                beta, radius, seed, log,
            )  # fmt: skip
    else:
        options: dict[str, Any] = {
            "gradient": networks.estimator(gradient or "centered", beta if gradient else usual.beta)
            if gradient or usual.beta is not None
            else None,
            "solver": networks.solver(solver) if solver else None,
            "radius": usual.radius,
            "bound": bound or usual.bound,
            "feedback": feedback,
            "tol": tol,
            "max_steps": max_steps,
            "kernel": kernel,
        }
        width = 1 if labels is None else len(labels)
        torch.manual_seed(seed)
        net = networks.build(model, found.train[0].shape[1], usual.hidden, width, layers, options)
        if device is not None:
            net = networks.placed(net, device, beta)
        config = TrainingConfig(
            epochs=usual.epochs,
            batch_size=usual.batch_size,
            learning_rate=1e-3 if usual.learning_rate is None else usual.learning_rate,
            weight_decay=usual.weight_decay,
            schedule=usual.schedule,  # type: ignore[arg-type]
            seed=seed,
        )
        plan = {
            "data": {"name": found.name, "sha256": found.sha256, "full": full},
            "validation_fraction": fraction,
            "patience": usual.patience,
            "label_smoothing": usual.label_smoothing,
            "training": asdict(config),
        }
        with where.locked(), joined() as group:
            predictor = predictor_for(found, net, labels)
            result = _train(predictor, found, config, plan, where, tensorboard, group)
    if not leads:
        return
    result = {
        "data": found.name,
        "model": model,
        "seed": seed,
        "scored_on": found.scored_on,
        **result,
        "checkpoint": None if output is None else str(output),
        "seconds": time.perf_counter() - started,
    }
    if as_json:
        typer.echo(json.dumps(result, indent=2))
    else:
        _show(result)


def _fraction(data: str, asked: float | None) -> float:
    from toreqprop.cli import samples

    fraction = (0.0 if samples.is_task(data) else FILE_FRACTION) if asked is None else asked
    if not 0 <= fraction < 1:
        raise InvalidInputError(
            f"--validation-fraction must be from 0 to below 1, got {fraction}. Typical: 0.2."
        )
    return fraction


def _read(
    data: str,
    target: str | None,
    drop: list[str],
    regression: bool | None,
    fraction: float,
    full: bool,
    data_dir: Path | None,
    seed: int,
) -> Samples:
    from toreqprop.cli import samples
    from toreqprop.tasks.tables import read_table

    if not samples.is_task(data):
        if full or data_dir is not None:
            raise InvalidInputError(
                f"--full-data and --data-dir are for built-in tasks; {data} is read as it is."
            )
        table = read_table(Path(data), target=target, drop=drop)
        return samples.from_table(table, regression, fraction, seed)
    if target is not None or drop or regression:
        raise InvalidInputError(
            f"{data} is a built-in task: --target, --drop and --regression are for files."
        )
    return samples.from_task(samples.read_task(data, seed, full, data_dir), fraction, seed)


def _train(
    predictor: Predictor,
    found: Samples,
    config: TrainingConfig,
    plan: dict[str, Any],
    where: Output,
    tensorboard: Path | None,
    group: Group,
) -> dict[str, Any]:
    from toreqprop import checkpoint as checkpoints
    from toreqprop.checkpoint import Checkpoint
    from toreqprop.cli.predictor import describe
    from toreqprop.cli.resume import check_same
    from toreqprop.cli.training_log import TrainingLog
    from toreqprop.training import History, fit

    earlier = group.told(where.earlier())
    history: list[dict[str, Any]] = []
    state: TrainerState | None = None
    about, arrays = describe(predictor)
    if earlier is not None:
        check_same(earlier, predictor, {**plan, "predictor": about}, where.folder)
        history, state = earlier.about["history"], earlier.training
        predictor = replace(predictor, model=earlier.model)
    done = 0 if state is None else state.epoch
    model = predictor.model

    title = f"{found.name}, {checkpoints.network_name(model)}"
    with TrainingLog(
        title if group.size == 1 else f"{title}, {group.size} processes",
        config.epochs,
        done,
        tensorboard if group.leads else None,
        shown=group.leads,
    ) as log:

        def on_epoch(epoch: Epoch) -> bool:
            row = {**asdict(epoch), "validation": None}
            # Wall-clock times would make equal trainings differ; accuracy is measured here.
            del row["seconds"], row["accuracy"]
            if found.validation is not None:
                scores = predictor.scores(found.validation)
                row["validation"] = scores["r2" if found.regression else "accuracy"]
                row["validation_loss"] = scores["rmse" if found.regression else "loss"]
            history.append(row)
            log.epoch(row)
            return exhausted(history, plan["patience"])

        def on_checkpoint(after: TrainerState) -> None:
            if where.folder is not None:
                content = {**plan, "predictor": about, "history": history}
                checkpoints.save(where.folder, Checkpoint(model, after, content, arrays))

        trained = History()
        try:
            if not exhausted(history, plan["patience"]):
                trained = fit(
                    model,
                    predictor.inputs(found.train[0]),
                    predictor.targets(found.train[1]),
                    config,
                    loss=_smoothed(predictor.loss, plan["label_smoothing"]),
                    on_epoch=on_epoch if group.leads else None,
                    on_checkpoint=on_checkpoint,
                    resume=state,
                    group=group,
                )
        except KeyboardInterrupt:
            if group.leads:
                log.say(where.after_interruption())
            raise
    if not group.leads:
        return {}
    last = history[-1]
    steps = {key: last[key] for key in ("free_steps", "nudged_steps")}
    scores = predictor.scores(found.scored)
    scores["loss"] = last["loss"]
    return {
        **scores,
        "epochs": last["epoch"],
        "resumed_after": done or None,
        "processes": group.size,
        "training_seconds": trained.seconds,
        **steps,
    }


def _smoothed(loss: Loss, amount: float) -> Loss:
    """The loss of classes with smoothed labels; that of numbers has none."""
    from torch.nn.functional import cross_entropy

    return partial(cross_entropy, label_smoothing=amount) if amount else loss


def _show(result: dict[str, Any]) -> None:
    steps = ""
    if result.get("free_steps") is not None:
        steps = f", {result['free_steps']:.1f} free and {result['nudged_steps']:.1f} nudged steps"
    if "accuracy" in result:
        score = f"accuracy {result['accuracy']:.2%} (chance {result['chance']:.1%})"
    else:
        score = f"R² {result['r2']:.4f}, root mean square error {result['rmse']:.4g}"
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(
        f"{result['data']}: {result['scored_on']} {score}, training loss {result['loss']:.4f}"
        f"{steps}, {result['seconds']:.1f} s"
    )
    if result["checkpoint"] is None:
        console.print("The model was not saved: add --output FOLDER.", style="dim")
    else:
        console.print(f"Checkpoint: {result['checkpoint']}")
