"""``toreqprop tune``: search hyperparameters on training data and write the file that is read."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from toreqprop.errors import DataUnavailableError, InvalidInputError

if TYPE_CHECKING:
    from toreqprop.bench.hyperparameters import ModelName, TaskSettings
    from toreqprop.bench.tuning import Budget, Trial

Search = tuple[str, "ModelName", "list[Trial] | str"]


def tune(
    tasks: Annotated[
        list[str] | None, typer.Argument(help="Tasks to tune for; all by default.")
    ] = None,
    trials: Annotated[int, typer.Option(help="Settings tried per task and model.")] = 12,
    splits: Annotated[int, typer.Option(help="Validation splits per trial.")] = 1,
    jobs: Annotated[int, typer.Option(help="Parallel searches.")] = 2,
    full_data: Annotated[bool, typer.Option("--full-data", help="For all 60,000 images.")] = False,
    epochs: Annotated[
        int | None, typer.Option(help="Epochs to write and to tune for; as they are by default.")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Likewise, the size of batches.")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder looked in first for data files.")
    ] = None,
    output: Annotated[
        Path, typer.Option(help="The file to write; entries of other tasks in it are kept.")
    ] = Path("hyperparameters.json"),
    as_json: Annotated[bool, typer.Option("--json", help="Print what was chosen.")] = False,
) -> None:
    """Search the hyperparameters of both models, on validation splits of the training data.

    The test data is never used. Both models get the same number of trials, the first of which are
    the settings in use now.

    \b
    Examples:
      toreqprop tune digits --trials 20
      toreqprop tune mnist fashion --full-data --jobs 1
    """
    missing = [name for name in ("optuna", "joblib") if find_spec(name) is None]
    if missing:
        raise InvalidInputError(
            f'Tuning needs {" and ".join(missing)}: run `pip install "toreqprop[bench,tune]"`.'
        )
    from toreqprop.bench import hyperparameters as file
    from toreqprop.bench.rows import ROWS, WITH_MORE_DATA, base, task_of
    from toreqprop.bench.tuning import Budget, best, describe_validation, record
    from toreqprop.tasks import files

    names = tasks or list(WITH_MORE_DATA if full_data else ROWS)
    for name in names:
        task_of(name)
        if full_data and name not in WITH_MORE_DATA:
            raise InvalidInputError(
                f"There is no larger data set for {name!r}: --full-data is for "
                f"{', '.join(WITH_MORE_DATA)}."
            )
    if data_dir is not None:
        os.environ[files.DATA_VARIABLE] = str(data_dir)
    console = Console(soft_wrap=True, highlight=False, stderr=as_json)
    content = file.read(output if output.exists() else None)
    budget = Budget(trials, splits)
    changed = {"epochs": epochs, "batch_size": batch_size}
    changed = {name: value for name, value in changed.items() if value is not None}
    start = copy.deepcopy(content)
    for name in names:
        entry = start["tasks"].setdefault(variant := file.variant(name, full_data), {})
        if not entry:  # a file from before this row
            entry |= file.read()["tasks"][variant]
        if base(name) == name:
            entry |= changed
        elif changed and base(name) not in names:
            raise InvalidInputError(f"{name} is trained like {base(name)}: tune both at once.")
    found: dict[str, dict[Any, list[Trial]]] = {}
    written: list[str] = []
    try:
        for name, model, result in _search_all(start, names, full_data, budget, jobs):
            if isinstance(result, str):
                console.print(f"{name}: not tuned. {result}", style="yellow", markup=False)
                continue
            found.setdefault(name, {})[model] = result
            choice = best(result)
            console.print(f"{name}, {model}: {choice.mean:.2f} % with {choice.settings}")
            if len(found[name]) == len(file.searched(name)):
                entry_name = file.variant(name, full_data)
                ordered = {each: found[name][each] for each in file.searched(name)}
                validation = describe_validation(name, full_data, splits)
                length = file.settings(name, full_data, start).epochs
                content["tasks"][entry_name] = record(
                    name, start["tasks"][entry_name], length, ordered, budget, validation
                )
                file.write(output, content)
                console.print(f"{name}: written to {output}")
                written.append(name)
    except KeyboardInterrupt:
        kept = f"{', '.join(written)}: kept in {output}." if written else "Nothing was written."
        console.print(f"{kept} A search under way is lost.", markup=False)
        raise
    if as_json:
        chosen = {name: content["tasks"][file.variant(name, full_data)] for name in found}
        typer.echo(json.dumps(chosen, indent=2))


def _search_all(
    content: dict[str, Any], names: list[str], full: bool, budget: Budget, jobs: int
) -> Iterator[Search]:
    from joblib import Parallel, delayed

    from toreqprop.bench.hyperparameters import searched, settings

    work = (
        delayed(_search)(name, model, settings(name, full, content), full, budget)
        for name in names
        for model in searched(name)
    )
    yield from Parallel(n_jobs=jobs, return_as="generator_unordered")(work)


def _search(name: str, model: ModelName, start: TaskSettings, full: bool, budget: Budget) -> Search:
    import torch

    from toreqprop.bench.tuning import search

    torch.set_num_threads(1)

    def said(number: int, trial: Trial) -> None:
        typer.echo(
            f"{name}, {model}: trial {number} of {budget.trials}, {trial.mean:.2f} %", err=True
        )

    try:
        return name, model, search(name, model, start, budget, full=full, on_trial=said)
    except DataUnavailableError as error:
        return name, model, str(error)
