"""``toreqprop tune``: search hyperparameters on training data and write the file that is read."""

from __future__ import annotations

import copy
import json
import os
from concurrent.futures import Future
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from toreqprop import checks
from toreqprop.errors import DataUnavailableError, InvalidInputError, LostWorkError
from toreqprop.processes import perform_all, tell

if TYPE_CHECKING:
    from toreqprop.bench.hyperparameters import ModelName, TaskSettings
    from toreqprop.bench.tuning import Budget, Trial
    from toreqprop.bench.tuning_journal import Journal
    from toreqprop.processes import Work


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

    Stop it at any time and run it again: finished searches are kept. The test data is never used.
    Both models get the same number of trials, the first of which are the settings in use now.

    \b
    Examples:
      toreqprop tune digits --trials 20
      toreqprop tune mnist fashion --full-data --jobs 1
    """
    if find_spec("optuna") is None:
        raise InvalidInputError('Tuning needs optuna: run `pip install "toreqprop[tune]"`.')
    checks.whole_number("--jobs", jobs, 1)
    from toreqprop.bench import hyperparameters as file
    from toreqprop.bench.rows import ROWS, WITH_MORE_DATA, base, task_of
    from toreqprop.bench.tuning import Budget, best, describe_validation, record
    from toreqprop.bench.tuning_journal import Journal
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
    request = {
        "names": names, "full": full_data, "budget": asdict(budget), "changed": changed,
    }  # fmt: skip
    journal = Journal.of(output, request, start)
    start = journal.start
    written: list[str] = []

    def finish(name: str) -> None:
        found = journal.found.get(name, {})
        if len(found) < len(file.searched(name)):
            return
        entry_name = file.variant(name, full_data)
        ordered = {each: found[each] for each in file.searched(name)}
        validation = describe_validation(name, full_data, splits)
        length = file.settings(name, full_data, start).epochs
        content["tasks"][entry_name] = record(
            name, start["tasks"][entry_name], length, ordered, budget, validation
        )
        file.write(output, content)
        console.print(f"{name}: written to {output}")
        written.append(name)

    def done(key: tuple[str, ModelName], future: Future[list[Trial]]) -> None:
        name, model = key
        try:
            result = future.result()
        except (DataUnavailableError, LostWorkError) as error:
            console.print(f"{name}: not tuned. {error}", style="yellow", markup=False)
            failed.append(name)
            return
        journal.add(name, model, result)
        choice = best(result)
        console.print(f"{name}, {model}: {choice.mean:.2f} % with {choice.settings}")
        finish(name)

    failed: list[str] = []
    try:
        for name in journal.found:
            finish(name)
        perform_all(
            _searches(journal, names, full_data, budget),
            jobs,
            lambda news: typer.echo(news, err=True),
            done,
            on_lost=lambda keys: console.print(
                f"A process was killed; searched again: {', '.join(k[0] for k in keys)}."
            ),
        )
    except KeyboardInterrupt:
        kept = sum(len(models) for models in journal.found.values())
        console.print(
            f"{kept} finished searches are saved; run the same command again for the rest.",
            markup=False,
        )
        raise
    journal.end()
    if as_json:
        chosen = {name: content["tasks"][file.variant(name, full_data)] for name in written}
        typer.echo(json.dumps(chosen, indent=2))
    if failed and not written:
        raise typer.Exit(1)


def _searches(
    journal: Journal, names: list[str], full: bool, budget: Budget
) -> dict[tuple[str, ModelName], Work]:
    """The searches that are left to do, by row and model."""
    from toreqprop.bench.hyperparameters import searched, settings

    return {
        (name, model): (_search, (name, model, settings(name, full, journal.start), full, budget))
        for name in names
        for model in searched(name)
        if model not in journal.found.get(name, {})
    }


def _search(
    name: str, model: ModelName, start: TaskSettings, full: bool, budget: Budget
) -> list[Trial]:
    from toreqprop.bench.tuning import search

    def said(number: int, trial: Trial) -> None:
        tell(f"{name}, {model}: trial {number} of {budget.trials}, {trial.mean:.2f} %")

    return search(name, model, start, budget, full=full, on_trial=said)
