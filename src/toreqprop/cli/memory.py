"""``toreqprop memory``: what a training step needs, against steps and size, and next to others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table


def memory(
    output: Annotated[Path, typer.Option(help="Folder for JSON and figure.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurements.")] = False,
) -> None:
    """Measure the peak memory of one training step: TorEqProp, unrolled, backpropagation.

    First against relaxation steps and hidden size; then of the networks of `toreqprop speed`, with
    their true norms, steps and worst cosines, next to plain networks of the same parameter count
    and of the same depth, the same network unrolled and torchdeq where it is installed.

    Writes memory.json, memory.svg and memory.png.

    \b
    Examples:
      toreqprop memory --output results
    """
    from toreqprop.bench import memory as bench
    from toreqprop.cli.studies import StudyDisplay
    from toreqprop.evidence import run_study
    from toreqprop.plots.style import need_matplotlib

    need_matplotlib()  # before anything is measured
    path = output / "memory.json"
    with StudyDisplay(Console(stderr=True)) as display:
        plain = run_study(
            bench.measurements(),
            lambda found: bench.assembled(found).as_dict(),
            command="toreqprop memory",
            path=path,
            listener=display,
        )
    curves = bench.read(plain)
    paths = bench.draw(curves, output)
    if as_json:
        typer.echo(json.dumps(plain, indent=2))
        return
    console = Console()
    for title, points, attribute in (
        (f"MB against relaxation steps ({bench.HIDDEN_OF_STEPS} hidden)",
         curves.against_steps, "steps"),
        (f"MB against hidden size ({bench.STEPS_OF_HIDDEN} steps)",
         curves.against_hidden, "hidden"),
    ):  # fmt: skip
        columns = sorted({getattr(p, attribute) for p in points})
        shown = Table("", *(str(c) for c in columns), title=title)
        for method in bench.METHODS:
            mine = {getattr(p, attribute): p.peak_mb for p in points if p.method == method}
            shown.add_row(method, *(f"{mine[c]:.1f}" for c in columns))
        console.print(shown)
    for method in bench.METHODS:
        console.print(
            f"{method}: {curves.growth(method):.2f} times the memory from "
            f"{bench.STEPS[0]} to {bench.STEPS[-1]} steps",
            highlight=False,
        )
    console.print(_rows(curves.rows))
    console.print("wrote " + ", ".join(str(p) for p in [path, *paths]), highlight=False)


def _rows(rows: Sequence[dict[str, Any]]) -> Table:
    shown = Table(
        "network", "against", "its step", "TorEqProp's over it",
        title="Peak memory of a training step, above what was there before it",
        caption="norm: of the largest coupling; steps: free + nudged; cosine: the worst tensor's",
    )  # fmt: skip
    for row in rows:
        network, (ours, *others) = row["network"], row["peaks"]
        said = [
            row["label"],
            f"{network['batch']} samples, {network['inputs']} inputs, {ours['peak_mb']:.1f} MB",
            f"norm {row['norm']:.3f}, feedback {network['feedback']:g}",
            f"tolerance {network['tol']:g}, steps "
            + " + ".join(f"{v:.1f}" for v in row["steps"].values()),
            f"cosine {row['cosine']:.4f}"
            + ("" if row["passed"] == row["certificates"] else ", not certified"),
        ]
        for place, each in enumerate(others):
            shown.add_row(
                said[place] if place < len(said) else "", each["name"],
                f"{each['peak_mb']:.1f} MB", f"{ours['peak_mb'] / each['peak_mb']:.2f}",
                end_section=place == len(others) - 1,
            )  # fmt: skip
    return shown
