"""``toreqprop mazes``: networks trained on small mazes, asked about large ones."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from toreqprop import checks
from toreqprop.cli import names

if TYPE_CHECKING:
    from toreqprop.bench import maze_study

FACTORS = (0.5, 1.0, 2.0)
"""What `--search` multiplies a method's rate by."""


def mazes(
    task: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(names.MAZE_TASKS)}; by default both."),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(names.MAZE_METHODS)}; by default all."),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(help="How many, from --seed on; by default the study's own.", min=1),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="The file that is written; by default results/mazes.json, and "
            "results/mazes_partial.json where not all is run."
        ),
    ] = None,
    search: Annotated[
        Path | None,
        typer.Option(help="Try three rates on validation mazes instead; lines are added to it."),
    ] = None,
    nudges: Annotated[
        Path | None,
        typer.Option(help="Compare nudges along a training that collapses instead; written there."),
    ] = None,
    credit: Annotated[
        Path | None,
        typer.Option(help="Measure how far credit travels in a map instead; written there."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 42,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again what an earlier command finished.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Train on 9x9 mazes by EP and otherwise, test on sizes up to 65x65, and print the table.

    Stop it at any time and run it again: finished trainings are kept.

    \b
    Examples:
      toreqprop mazes
      toreqprop mazes --method ep --seeds 1
      toreqprop mazes --method plain-12 --search results/mazes_search.jsonl --seed 7
      toreqprop mazes --nudges results/maze_nudges.json
      toreqprop mazes --credit results/maze_credit.json
    """
    import torch

    from toreqprop.bench import maze_study
    from toreqprop.bench.mazes import METHODS, SETUPS
    from toreqprop.cli.studies import StudyDisplay
    from toreqprop.tasks.mazes import MAZE_TASKS

    for name in task or ():
        checks.choice("task", name, MAZE_TASKS)
    for name in method or ():
        checks.choice("method", name, METHODS)
    torch.set_num_threads(1)
    if nudges is not None or credit is not None:
        _aside(nudges, credit)
        return
    keys = [
        (name, how, number)
        for how in method or METHODS
        for number in range(seed, seed + (seeds or maze_study.SEEDS))
        for name in task or MAZE_TASKS
    ]
    if search is not None:
        with Progress(console=Console(stderr=True), transient=True) as progress:
            trials = _search(keys, search, progress)
        typer.echo(json.dumps(trials, indent=2 if as_json else None))
        return
    words = [*(w for name in task or () for w in ("--task", name))]
    words += [w for name in method or () for w in ("--method", name)]
    words += [] if seeds is None else ["--seeds", str(seeds)]
    words += [] if seed == 42 else ["--seed", str(seed)]
    default = Path("results/mazes_partial.json" if words else "results/mazes.json")
    with StudyDisplay(Console(stderr=True)) as display:
        found = maze_study.measure(
            SETUPS, keys, output or default, shlex.join(["toreqprop", "mazes", *words]), display,
            fresh=fresh,
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps([asdict(run) for run in found.runs], indent=2))
    else:
        typer.echo(maze_study.render_markdown(found))


def _aside(nudges: Path | None, credit: Path | None) -> None:
    """The studies beside the runs, each kept in its file, and their tables."""
    from toreqprop.bench import maze_credit, maze_nudges
    from toreqprop.cli.studies import StudyDisplay
    from toreqprop.evidence import run_study

    for option, path, study in (
        ("nudges", nudges, maze_nudges),
        ("credit", credit, maze_credit),
    ):
        if path is None:
            continue
        with StudyDisplay(Console(stderr=True)) as display:
            found = run_study(
                study.measurements(),
                study.assemble,
                command=f"toreqprop mazes --{option} {path}",
                path=path,
                listener=display,
            )
        typer.echo(study.render_markdown(found))


def _search(keys: list[maze_study.Key], path: Path, progress: Progress) -> list[dict[str, object]]:
    """Every run at three rates, each trial a line of the file once it is done."""
    from toreqprop.bench import maze_study
    from toreqprop.bench.mazes import SETUPS

    bar = progress.add_task("searching", total=len(FACTORS) * len(keys))
    found = []
    for task, method, seed in keys:
        for factor in FACTORS:
            trial = maze_study.search(SETUPS[task], method, seed, factor)
            with path.open("a") as file:
                file.write(json.dumps(trial) + "\n")
            found.append(trial)
            progress.advance(bar)
    return found
