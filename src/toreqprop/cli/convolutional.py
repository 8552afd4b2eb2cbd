"""``toreqprop convolutional``: EP and backprop with the same convolutional layers."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from toreqprop import checks
from toreqprop.cli.names import CONVOLUTIONAL_TASKS, starting


def convolutional(
    tasks: Annotated[
        list[str] | None,
        typer.Argument(
            help="Data sets, both by default.", autocompletion=starting(CONVOLUTIONAL_TASKS)
        ),
    ] = None,
    draw: Annotated[
        bool, typer.Option("--draw", help="5,000 training images instead of all 60,000.")
    ] = False,
    epochs: Annotated[int | None, typer.Option(help="Instead of the study's own number.")] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds.", min=1)] = 1,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 42,
    jobs: Annotated[int, typer.Option(help="Parallel processes.", min=1)] = 1,
    output: Annotated[Path, typer.Option(help="Folder for convolutional.json.")] = Path("results"),
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again what an earlier command finished.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurements.")] = False,
) -> None:
    """Train the same convolutional layers by EP and by backprop, and test them once.

    Writes convolutional.json, with certificates and the processor time of a step. All images take
    half an hour of processor time; stop it at any time, finished trainings are kept.

    \b
    Examples:
      toreqprop convolutional
      toreqprop convolutional mnist --draw --seeds 3
    """
    from dataclasses import replace

    from toreqprop.bench import convolutional as bench
    from toreqprop.cli.studies import StudyDisplay
    from toreqprop.evidence import run_study

    chosen = tasks or list(CONVOLUTIONAL_TASKS)
    for name in chosen:
        checks.choice("task", name, CONVOLUTIONAL_TASKS)
    settings = bench.ConvolutionalSettings()
    if epochs is not None:
        settings = replace(settings, epochs=checks.whole_number("epochs", epochs, 1))
    path = output / "convolutional.json"
    with StudyDisplay(Console(stderr=True)) as display:
        plain = run_study(
            bench.measurements(
                chosen,
                bench.METHODS,
                range(seed, seed + seeds),
                settings,
                full=not draw,
                timed=True,
            ),
            bench.assembled,
            command=_command(tasks or [], draw, epochs, seeds, seed),
            path=path,
            processes=jobs,
            fresh=fresh,
            listener=display,
        )
    if as_json:
        typer.echo(json.dumps(plain, indent=2))
        return
    console = Console()
    console.print(_table(plain))
    console.print(f"wrote {path}", highlight=False)


def _command(tasks: list[str], draw: bool, epochs: int | None, seeds: int, seed: int) -> str:
    words = ["toreqprop", "convolutional", *tasks, *(["--draw"] if draw else [])]
    words += [] if epochs is None else ["--epochs", str(epochs)]
    words += [] if seeds == 1 else ["--seeds", str(seeds)]
    return shlex.join([*words, *([] if seed == 42 else ["--seed", str(seed)])])


def _table(found: dict[str, Any]) -> Table:
    shown = Table("data", "method", "seed", "test accuracy", "certificate", "processor time")
    for row in found["runs"]:
        proof = row["certificate"]
        shown.add_row(
            row["task"],
            row["method"],
            str(row["seed"]),
            f"{row['accuracy']:.2%}",
            "–" if proof is None else "PASS" if proof["ok"] else "FAIL",
            f"{row['timing']['cpu_seconds']:.0f} s",
        )
    return shown
