"""``toreqprop norms``: the true norm of every weight after every training step."""

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


def norms(
    kind: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(names.NORM_KINDS)}; by default all."),
    ] = None,
    widest: Annotated[int, typer.Option(help="Leave out what is wider.", min=1)] = 2048,
    share: Annotated[float, typer.Option(help="Of the steps of each training.")] = 1.0,
    output: Annotated[
        Path, typer.Option(help="Where norms are kept; those in it are not computed again.")
    ] = Path("results/norms.json"),
    write: Annotated[
        Path | None, typer.Option(help="Markdown file whose marked table is replaced.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of weights and data.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Train at many widths and rates; exit code 1 where a norm was above its radius.

    \b
    Examples:
      toreqprop norms --widest 128 --share 0.1
      toreqprop norms --write docs/norms.md
    """
    import torch

    from toreqprop.bench import norms as study
    from toreqprop.cli.estimators import replace_table

    for name in kind or ():
        checks.choice("kind", name, tuple(study.PLAN))
    checks.number("share", share, 0, above=True, typical="0.1 or 1")
    torch.set_num_threads(1)
    setup = study.Setup(tuple(kind or study.PLAN), share=share, widest=widest, seed=seed)
    with Progress(console=Console(stderr=True), transient=True) as progress:
        cells = list(setup.cells())
        bar = progress.add_task("training", total=sum(setup.steps(c[0], c[1]) for c in cells))
        found = study.measure(setup, output, on_cell=lambda c: progress.advance(bar, c.steps))
    if as_json:
        typer.echo(json.dumps([asdict(cell) for cell in found], indent=2))
    else:
        text = study.render_markdown(found)
        typer.echo(text)
        if write is not None:
            replace_table(write, text)
    if any(cell.above for cell in found):
        raise typer.Exit(1)
