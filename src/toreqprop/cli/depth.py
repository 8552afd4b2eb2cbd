"""``toreqprop depth``: networks of several depths next to backpropagation's twins."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from toreqprop import checks
from toreqprop.cli import names
from toreqprop.cli.elsewhere import Scheduler


def depth(
    task: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(names.DEPTH_TASKS)}; by default both."),
    ] = None,
    network: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(names.DEPTH_NETWORKS)} (layers); by default all."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many, from --seed on.", min=1)] = 10,
    epochs: Annotated[int, typer.Option(help="Passes over the 5,000 images.", min=1)] = 10,
    scheduler: Scheduler = None,
    output: Annotated[
        Path, typer.Option(help="Where runs are kept; those in it are not repeated.")
    ] = Path("results/depth.json"),
    write: Annotated[
        Path | None, typer.Option(help="Markdown file whose marked table is replaced.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 42,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Train networks by EP and their twins by backpropagation, and print the table.

    \b
    Examples:
      toreqprop depth
      toreqprop depth --network 8 --seeds 10
      toreqprop depth --seeds 10 --write docs/depth.md
    """
    import torch

    from toreqprop.bench import depth as study
    from toreqprop.cli.estimators import replace_table

    for name in task or ():
        checks.choice("task", name, study.TASKS)
    for name in network or ():
        checks.choice("network", name, study.NETWORKS)
    torch.set_num_threads(1)
    setup = study.Setup(
        tuple(task or study.TASKS), tuple(network or study.NETWORKS), seeds=seeds, epochs=epochs,
        first_seed=seed,
    )  # fmt: skip
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("training", total=len(list(setup.runs())))
        runs = study.measure(
            setup, output, on_run=lambda run: progress.advance(bar), executor=scheduler
        )
    if as_json:
        typer.echo(json.dumps([asdict(run) for run in runs], indent=2))
        return
    text = study.render_markdown(setup, runs)
    typer.echo(text)
    if write is not None:
        replace_table(write, text)
