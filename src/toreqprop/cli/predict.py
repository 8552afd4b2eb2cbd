"""``toreqprop evaluate`` and ``toreqprop predict``: use a checkpoint on data."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from toreqprop.atomic import write_atomically
from toreqprop.errors import CheckpointError, InvalidInputError

if TYPE_CHECKING:
    import numpy as np

    from toreqprop.checkpoint import Checkpoint
    from toreqprop.cli.predictor import Predictor

CHECKPOINT = Annotated[Path, typer.Argument(help="The folder `toreqprop train --output` wrote.")]
DATA = Annotated[str, typer.Argument(help="A CSV or NPZ file, or a task's name for its test data.")]
DATA_DIR = Annotated[Path | None, typer.Option(help="Folder with the data files of tasks.")]


def evaluate(
    checkpoint: CHECKPOINT,
    data: DATA,
    target: Annotated[
        str | None, typer.Option(help="The true values' column or array; else as in training.")
    ] = None,
    data_dir: DATA_DIR = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Score a checkpoint on data whose answers are known.

    \b
    Examples:
      toreqprop evaluate flowers new-flowers.csv
      toreqprop evaluate run digits --json
    """
    from toreqprop import checkpoint as checkpoints
    from toreqprop.cli.predictor import restore

    stored = checkpoints.load(checkpoint)
    predictor = restore(stored)
    features, truth = _read(stored, predictor, data, target, data_dir, needs_target=True)
    assert truth is not None
    result = {"data": data, "samples": len(features), **predictor.scores((features, truth))}
    if as_json:
        typer.echo(json.dumps(result, indent=2))
        return
    if "accuracy" in result:
        score = f"accuracy {result['accuracy']:.2%} (chance {result['chance']:.1%})"
        score += f", loss {result['loss']:.4f}"
    else:
        score = f"R² {result['r2']:.4f}, root mean square error {result['rmse']:.4g}"
        score += f", mean absolute error {result['mae']:.4g}"
    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.print(f"{data}, {result['samples']} samples: {score}")


def predict(
    checkpoint: CHECKPOINT,
    data: DATA,
    output: Annotated[
        Path | None, typer.Option(help="CSV file to write; else standard output.")
    ] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="Also the probability of every class.")
    ] = False,
    data_dir: DATA_DIR = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of CSV.")] = False,
) -> None:
    """Predict with a checkpoint: one line per sample, as CSV.

    \b
    Examples:
      toreqprop predict flowers new-flowers.csv --output answers.csv
      toreqprop predict flowers new-flowers.csv --proba
    """
    from toreqprop import checkpoint as checkpoints
    from toreqprop.cli.predictor import restore

    stored = checkpoints.load(checkpoint)
    predictor = restore(stored)
    if proba and predictor.labels is None:
        raise InvalidInputError("--proba is for classes; this checkpoint predicts numbers.")
    features, _ = _read(stored, predictor, data, None, data_dir, needs_target=False)
    columns: dict[str, list] = {predictor.target_name: predictor.predict(features).tolist()}
    if proba and predictor.labels is not None:
        chances = predictor.probabilities(features)
        columns |= {f"p({n})": chances[:, k].tolist() for k, n in enumerate(predictor.labels)}
    rows = list(zip(*columns.values(), strict=True))
    if as_json:
        text = json.dumps([dict(zip(columns, row, strict=True)) for row in rows], indent=2) + "\n"
    else:
        table = io.StringIO()
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
        text = table.getvalue()
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        write_atomically(output, text)
    except OSError as error:
        raise InvalidInputError(f"{output} cannot be written: {error.strerror}.") from None
    Console(stderr=True, soft_wrap=True, highlight=False, markup=False).print(
        f"{len(rows)} predictions written to {output}"
    )


def _read(
    stored: Checkpoint,
    predictor: Predictor,
    data: str,
    target: str | None,
    data_dir: Path | None,
    needs_target: bool,
) -> tuple[np.ndarray, np.ndarray | None]:
    from toreqprop.cli import samples
    from toreqprop.tasks.tables import read_table

    if not samples.is_task(data):
        table = read_table(
            Path(data),
            target=target or predictor.target_name,
            columns=predictor.columns,
            needs_target=needs_target,
        )
        if predictor.labels is None and table.numbers is not None:
            return table.features, table.numbers
        return table.features, table.target
    # The seed decides which samples of a task are test data.
    try:
        seed, full = stored.about["training"]["seed"], stored.about["data"]["full"]
    except (KeyError, TypeError):
        raise CheckpointError(
            "The checkpoint does not say which part of a task it was trained on: train it again."
        ) from None
    test = samples.from_task(samples.read_task(data, seed, full, data_dir), 0.0, seed).test
    assert test is not None
    return test
