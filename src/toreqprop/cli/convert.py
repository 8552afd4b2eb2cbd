"""``toreqprop convert``: sequential networks trained by EP, measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from toreqprop import checks
from toreqprop.cli import names


def convert(
    network: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(names.EXAMPLE_NETWORKS)}; by default all."),
    ] = None,
    feedback: Annotated[
        list[float] | None, typer.Option(help="Strength of the way back; by default several.")
    ] = None,
    width: Annotated[int, typer.Option(help="Channels of the first layer.", min=1)] = 8,
    steps: Annotated[int, typer.Option(help="Training steps of each network.", min=1)] = 40,
    write: Annotated[
        Path | None, typer.Option(help="Markdown file whose marked table is replaced.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of data and weights.")] = 42,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Turn sequential networks into layers of neurons, train them by EP and print the table.

    Gradients are compared with the exact one and with plain backpropagation's, step times with
    backpropagation's.

    \b
    Examples:
      toreqprop convert
      toreqprop convert --network lenet --feedback 0.5 --feedback 0.05
      toreqprop convert --write docs/converted.md
    """
    from toreqprop.bench import converted_table
    from toreqprop.cli.estimators import replace_table
    from toreqprop.models.example_networks import NETWORKS

    for name in network or ():
        checks.choice("network", name, list(NETWORKS))
    setup = converted_table.Setup(
        tuple(network or NETWORKS),
        tuple(feedback or converted_table.FEEDBACKS),
        width=width,
        steps=steps,
        seed=seed,
    )
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("measuring", total=setup.count())
        table = converted_table.measure(setup, on_row=lambda row: progress.advance(bar))
    if as_json:
        typer.echo(json.dumps(table.as_dict(), indent=2, ensure_ascii=False))
        return
    text = converted_table.render_markdown(table)
    typer.echo(text)
    if write is not None:
        replace_table(write, text)
