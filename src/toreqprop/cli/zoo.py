"""``toreqprop zoo``: trained networks that ship, and the command that made them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(
    no_args_is_help=True,
    help="Trained networks that ship: what they reached, and how to make them again.\n\n"
    "Example: toreqprop zoo list",
)

AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


@app.command("list")
def list_networks(as_json: AsJson = False) -> None:
    """Show every network with its test accuracy, certificate, size and command.

    \b
    Examples:
      toreqprop zoo list
      toreqprop zoo list --json
    """
    from toreqprop.zoo import RECIPES, record

    found = [record(name) for name in RECIPES]
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    table = Table("name", "what it is", "test accuracy", "smallest cosine", "parameters", "command")
    for about in found:
        table.add_row(
            about["name"],
            about["title"],
            f"{about['test_accuracy']:.2%}",
            f"{about['certificate']['min_cosine']:.4f}",
            str(about["parameters"]),
            about["command"],
        )
    Console().print(table)


@app.command()
def build(
    names: Annotated[list[str] | None, typer.Argument(help="Networks; all by default.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder to write into; the library's own by default.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of weights and batches.", min=0)] = 42,
    as_json: AsJson = False,
) -> None:
    """Train networks as their recipes say and keep them with what they reached.

    Exit code 1 if a certificate fails or an accuracy is no better than chance.

    \b
    Examples:
      toreqprop zoo build digits --output zoo
    """
    from toreqprop import checks
    from toreqprop.zoo import RECIPES, shipped

    for name in names or ():
        checks.choice("name", name, tuple(RECIPES))
    found: list[dict[str, Any]] = []
    console = Console(stderr=as_json, highlight=False)
    for name in names or RECIPES:
        about = shipped.build(name, seed, output or shipped.FOLDER)
        found.append(about)
        console.print(f"{name}: {about['test_accuracy']:.2%}, {about['certificate']['verdict']}")
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
    good = all(a["certificate"]["ok"] and a["test_accuracy"] > a["chance"] for a in found)
    raise typer.Exit(0 if good else 1)
