"""``toreqprop mazes``: networks trained on small mazes, asked about large ones."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import Progress

from toreqprop import checks
from toreqprop.bench import maze_study
from toreqprop.bench.mazes import METHODS, RATES, Setup
from toreqprop.tasks.mazes import MAZE_TASKS

FACTORS = (1 / 3, 1.0, 3.0)
"""What `--search` multiplies a method's rate by."""


def mazes(
    task: Annotated[
        list[str] | None, typer.Option(help=f"One of {', '.join(MAZE_TASKS)}; by default both.")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help=f"One of {', '.join(METHODS)}; by default all.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many, from --seed on.", min=1)] = 5,
    output: Annotated[
        Path, typer.Option(help="Where runs are kept; those in it are not repeated.")
    ] = Path("results/mazes.json"),
    search: Annotated[
        Path | None,
        typer.Option(help="Try three rates on validation mazes instead; lines are added to it."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 42,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Train on 9x9 mazes by EP and otherwise, test on sizes up to 65x65, and print the table.

    \b
    Examples:
      toreqprop mazes
      toreqprop mazes --method ep --seeds 1
      toreqprop mazes --method plain-12 --search results/mazes_search.jsonl --seed 7
    """
    for name in task or ():
        checks.choice("task", name, MAZE_TASKS)
    for name in method or ():
        checks.choice("method", name, METHODS)
    torch.set_num_threads(1)
    setup = Setup(tuple(task or MAZE_TASKS), tuple(method or METHODS), seeds=seeds, first_seed=seed)
    console = Console(stderr=True)
    with Progress(console=console, transient=True) as progress:
        if search is not None:
            trials = _search(setup, search, progress)
            typer.echo(json.dumps(trials, indent=2 if as_json else None))
            return
        bar = progress.add_task("training", total=len(list(setup.runs())))
        runs = maze_study.measure(setup, output, on_run=lambda run: progress.advance(bar))
    if as_json:
        typer.echo(json.dumps([asdict(run) for run in runs], indent=2))
        return
    typer.echo(maze_study.render_markdown(runs, setup.sides))


def _search(setup: Setup, path: Path, progress: Progress) -> list[dict[str, object]]:
    """Every run of the setup at three rates, each trial a line of the file once it is done."""
    runs = list(setup.runs())
    bar = progress.add_task("searching", total=len(FACTORS) * len(runs))
    found = []
    for task, method, seed in runs:
        for factor in FACTORS:
            trial = maze_study.search(setup, task, method, seed, factor * RATES[method])
            with path.open("a") as file:
                file.write(json.dumps(trial) + "\n")
            found.append(trial)
            progress.advance(bar)
    return found
