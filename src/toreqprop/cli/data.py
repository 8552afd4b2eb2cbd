"""`toreqprop data`: which data files are here, fetch them, verify them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.logging import RichHandler
from rich.table import Table

from toreqprop.cli.names import DATA_VARIABLE
from toreqprop.errors import TorEqPropError

if TYPE_CHECKING:
    from toreqprop.tasks import files

app = typer.Typer(no_args_is_help=True, help="List, fetch and verify the data files of the tasks.")

_DATA_DIR = typer.Option(
    None, "--data-dir", help=f"Folder looked in first; else the variable {DATA_VARIABLE}."
)
_JSON = typer.Option(False, "--json", help="Print JSON instead of a table.")


@app.command("list")
def list_files(data_dir: Path | None = _DATA_DIR, as_json: bool = _JSON) -> None:
    """Show every data file, its task and size, and where it was found.

    \b
    Examples:
      toreqprop data list --json
    """
    _show(_inspect_all(data_dir), as_json)


@app.command()
def fetch(
    tasks: list[str] | None = typer.Argument(
        None, help="Tasks or texts to fetch for; by default the tasks of the benchmark."
    ),
    data_dir: Path | None = _DATA_DIR,
    as_json: bool = _JSON,
) -> None:
    """Get the data files of the given tasks from the first source that answers, and verify them.

    Exit code 1 if a file is not available.

    \b
    Examples:
      toreqprop data fetch mnist fashion
      toreqprop data fetch cifar10 shakespeare
    """
    from toreqprop.tasks import TASKS, files, get

    console = Console(stderr=as_json)
    failed = False
    standard = [name for name, task in TASKS.items() if task.standard]
    chosen = tasks or standard
    for name in chosen:
        if name not in files.COLLECTIONS:
            get(name)  # refuses what is no task either
    for name in chosen:
        try:
            if name not in files.COLLECTIONS:
                console.print(f"{name}: needs no data files.")
                continue
            with _log_shown():
                contents = files.load_contents(name, data_dir)
        except TorEqPropError as error:
            console.print(f"{name}: {error}", style="red", markup=False, soft_wrap=True)
            failed = True
        else:
            console.print(f"{name}: {len(contents)} files present and verified.")
    if as_json:
        held = [name for name in chosen if name in files.COLLECTIONS]
        _show([state for name in held for state in files.inspect(name, data_dir)], as_json)
    if failed:
        raise typer.Exit(1)


@app.command()
def verify(data_dir: Path | None = _DATA_DIR, as_json: bool = _JSON) -> None:
    """Recompute the checksum of every copy on this machine; exit code 1 if one is altered.

    \b
    Examples:
      toreqprop data verify --data-dir downloads
    """
    states = _inspect_all(data_dir)
    _show(states, as_json)
    if any(state.state == "altered" for state in states):
        raise typer.Exit(1)


def _inspect_all(data_dir: Path | None) -> list[files.FileState]:
    from toreqprop.tasks import files

    return [state for task in files.COLLECTIONS for state in files.inspect(task, data_dir)]


def _show(states: list[files.FileState], as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "file": state.file.name,
                "task": state.task,
                "size": state.file.size,
                "sha256": state.file.sha256,
                "state": state.state,
                "where": None if state.path is None else str(state.path),
            }
            for state in states
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table("file", "task", "size", "state")
    table.columns[0].no_wrap = True
    table.add_column("where", overflow="fold")
    styles = {"present": "green", "altered": "red", "missing": "yellow"}
    for state in states:
        table.add_row(
            state.file.name,
            state.task,
            f"{state.file.size / 1e6:.2f} MB",
            f"[{styles[state.state]}]{state.state}[/]",
            "" if state.path is None else str(state.path.parent),
        )
    Console().print(table)


@contextmanager
def _log_shown() -> Iterator[None]:
    """Let the user see which source is asked and which file was refused."""
    log = logging.getLogger("toreqprop.tasks")
    handler = RichHandler(console=Console(stderr=True), show_time=False, show_path=False)
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
