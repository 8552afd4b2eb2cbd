"""``toreqprop estimators`` and ``toreqprop sweep-beta``: how good each gradient is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"


def estimators(
    write: Annotated[
        Path | None, typer.Option(help="Markdown file whose marked table is replaced.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of data and weights.")] = 42,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Measure every estimator against the exact gradient and print the table.

    \b
    Examples:
      toreqprop estimators
      toreqprop estimators --write docs/estimators.md
    """
    from toreqprop.bench import estimator_table

    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("measuring", total=len(estimator_table.variants()))
        table = estimator_table.measure(seed, on_row=lambda row: progress.advance(bar))
    if as_json:
        typer.echo(json.dumps(table.as_dict(), indent=2, ensure_ascii=False))
        return
    text = estimator_table.render_markdown(table)
    typer.echo(text)
    if write is not None:
        replace_table(write, text)


def replace_table(write: Path, text: str) -> None:
    """Put a table between the marks of a page."""
    page = write.read_text() if write.exists() else f"{BEGIN}\n{END}\n"
    if BEGIN not in page or END not in page:
        raise typer.BadParameter(f"{write} has no lines {BEGIN} and {END} to write between.")
    head, rest = page.split(BEGIN, 1)
    write.write_text(f"{head}{BEGIN}\n{text}\n{END}{rest.split(END, 1)[1]}")


def sweep_beta(
    output: Annotated[Path, typer.Option(help="Folder for the figure and the JSON.")] = Path(
        "results"
    ),
    seed: Annotated[int, typer.Option(help="Seed of data and weights.")] = 42,
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurements.")] = False,
) -> None:
    """Draw gradient error against β for the estimators, in float32 and float64.

    Writes beta_sweep.json, beta_sweep.svg and beta_sweep.png.

    \b
    Examples:
      toreqprop sweep-beta --output results
    """
    from toreqprop.bench import beta_sweep
    from toreqprop.cli.studies import StudyDisplay
    from toreqprop.evidence import run_study
    from toreqprop.plots.style import need_matplotlib

    need_matplotlib()
    with StudyDisplay(Console(stderr=True)) as display:
        plain = run_study(
            beta_sweep.measurements(seed),
            lambda curves: beta_sweep.assembled(seed, curves).as_dict(),
            command="toreqprop sweep-beta" + (f" --seed {seed}" if seed != 42 else ""),
            path=output / "beta_sweep.json",
            listener=display,
        )
    points = tuple(beta_sweep.Point(**point) for point in plain["points"])
    paths = beta_sweep.draw(beta_sweep.Sweep(seed, points), output)
    if as_json:
        typer.echo(json.dumps(plain, indent=2))
        return
    console = Console()
    for name, slope in plain["slopes"].items():
        console.print(f"{name}: error falls as β^{slope:.3f}", highlight=False)
    for name, floor in plain["floors"].items():
        console.print(
            f"{name}: smallest error {floor['error']:.1e} at β = {floor['beta']:.1e}",
            highlight=False,
        )
    console.print("wrote " + ", ".join(str(p) for p in paths), highlight=False)
