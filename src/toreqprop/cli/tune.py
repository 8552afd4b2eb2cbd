"""``toreqprop tune``: search the settings of rows on training data and write their file."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import Future
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from toreqprop import checks
from toreqprop.cli.elsewhere import Scheduler
from toreqprop.errors import DataUnavailableError, InvalidInputError, LostWorkError
from toreqprop.processes import perform_all, tell

if TYPE_CHECKING:
    from toreqprop.bench.settings import ModelName, ModelSettings
    from toreqprop.bench.tuning import Budget, Trial
    from toreqprop.bench.tuning_journal import Search
    from toreqprop.processes import Work


def tune(
    rows: Annotated[
        list[str] | None, typer.Argument(help="Rows to tune; those without settings by default.")
    ] = None,
    trials: Annotated[int, typer.Option(help="Settings tried per arm of a row.")] = 12,
    splits: Annotated[
        int | None, typer.Option(help="Validation splits per trial; the row's own by default.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the search.")] = 0,
    jobs: Annotated[int, typer.Option(help="Parallel searches.")] = 2,
    scheduler: Scheduler = None,
    storage: Annotated[
        str | None,
        typer.Option(
            help="Database of a search that several processes share, such as sqlite:///search.db.",
            metavar="URL",
        ),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder looked in first for data files.")
    ] = None,
    output: Annotated[
        Path, typer.Option(help="The file to write; entries of other rows in it are kept.")
    ] = Path("hyperparameters.json"),
    as_json: Annotated[bool, typer.Option("--json", help="Print what was chosen.")] = False,
) -> None:
    """Search the settings of every arm of a row, on validation splits of its training data.

    Stop it at any time and run it again: finished searches are kept. The test data is never used.
    All arms get the same number of trials; EP's count only where its certificates pass.

    With --storage the same command, run several times at once, shares the trials; what is tried
    then depends on who is faster, what a setting scores never does.

    \b
    Examples:
      toreqprop tune
      toreqprop tune digits --trials 20
      toreqprop tune digits --storage sqlite:///search.db
      toreqprop tune --scheduler tcp://10.0.0.1:8786
    """
    if find_spec("optuna") is None:
        raise InvalidInputError('Tuning needs optuna: run `pip install "toreqprop[tune]"`.')
    checks.whole_number("--jobs", jobs, 1)
    from toreqprop.bench import hyperparameters as file
    from toreqprop.bench.rows import ROWS, row
    from toreqprop.bench.settings import ModelSettings
    from toreqprop.bench.tuning import Budget, record, second_round
    from toreqprop.bench.tuning_journal import Journal
    from toreqprop.evidence import provenance
    from toreqprop.tasks import files

    started = time.time()
    content = file.read(output if output.exists() else None)
    known = [each.name for each in ROWS]
    names = list(dict.fromkeys(rows or [n for n in known if n not in content["rows"]] or known))
    chosen = [row(name) for name in names]
    if data_dir is not None:
        os.environ[files.DATA_VARIABLE] = str(data_dir)
    console = Console(soft_wrap=True, highlight=False, stderr=as_json)
    budget = Budget(trials, splits, seed)
    request = {"names": names, "budget": asdict(budget)}
    journal = Journal.of(output, request)
    written: list[str] = []
    failed: list[str] = []

    def used_before(name: str, arm: ModelName) -> ModelSettings | None:
        entry = content["rows"].get(name)
        return None if entry is None else ModelSettings(**entry[arm])

    def finish(name: str) -> None:
        made = provenance(f"toreqprop tune {name} --trials {trials}", started)
        made["environment"] = made["environment"]["packages"]
        found = {arm: journal.both(name, arm) for arm in file.searched(row(name))}
        try:
            content["rows"][name] = record(row(name), found, budget, made)
        except InvalidInputError as error:
            refused(name, error)
            return
        content["rows"] = {n: content["rows"][n] for n in known if n in content["rows"]}
        file.write(output, content)
        console.print(f"{name}: written to {output}")
        written.append(name)

    def refused(name: str, error: Exception) -> None:
        console.print(f"{name}: not tuned. {error}", style="yellow", markup=False)
        failed.append(name)

    def done(key: Search, future: Future[list[Trial]]) -> None:
        name, arm, number = key
        try:
            result = future.result()
        except (DataUnavailableError, LostWorkError) as error:
            refused(name, error)
            return
        journal.add(name, arm, number, result)
        top = max(result, key=lambda trial: trial.score)
        console.print(f"{name}, {arm}, round {number}: {top.mean:.2f} % with {top.settings}")

    def run(work: dict[Search, Work]) -> None:
        perform_all(
            {key: what for key, what in work.items() if not journal.has(*key)},
            jobs,
            lambda news: typer.echo(news, err=True),
            done,
            on_lost=lambda keys: console.print(
                f"A process was killed; searched again: {', '.join(k[0] for k in keys)}."
            ),
            executor=scheduler,
        )

    try:
        arms = [(each.name, arm) for each in chosen for arm in file.searched(each)]
        run(
            {
                (n, arm, 1): (_search, (n, arm, budget, used_before(n, arm), None, storage))
                for n, arm in arms
            }
        )
        tried = [each for each in chosen if each.name not in failed]
        run(
            {
                (each.name, arm, 2): (_search, (each.name, arm, budget, None, points))
                for each in tried
                for arm, points in second_round(each, journal.first(each.name)).items()
            }
        )
        for each in tried:
            if each.name not in failed:
                finish(each.name)
    except KeyboardInterrupt:
        kept = len(journal.found)
        console.print(
            f"{kept} finished searches are saved; run the same command again for the rest.",
            markup=False,
        )
        raise
    if not failed:
        journal.end()
    if as_json:
        typer.echo(json.dumps({name: content["rows"][name] for name in written}, indent=2))
    if failed and not written:
        raise typer.Exit(1)


def _search(
    name: str,
    arm: ModelName,
    budget: Budget,
    before: ModelSettings | None,
    points: list[ModelSettings] | None,
    storage: str | None = None,
) -> list[Trial]:
    from toreqprop.bench.rows import row
    from toreqprop.bench.tuning import search

    def said(number: int, trial: Trial) -> None:
        refused = "" if trial.certified else ", certificates failed"
        tell(f"{name}, {arm}: trial {number}, {trial.mean:.2f} %{refused}")

    return search(
        row(name), arm, budget, before=before, points=points, on_trial=said, storage=storage
    )
