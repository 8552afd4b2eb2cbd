"""``toreqprop tables``: defaults of small tables, searched, and next to scikit-learn's."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from toreqprop.atomic import write_atomically
from toreqprop.cli.elsewhere import Scheduler

if TYPE_CHECKING:
    from toreqprop.bench.table_study import Tried


def tables(
    names: Annotated[
        list[str] | None, typer.Argument(help="Tables; all of them by default.")
    ] = None,
    candidates: Annotated[
        int,
        typer.Option(help="Settings tried on validation folds; 1 is the defaults alone.", min=1),
    ] = 1,
    seeds: Annotated[int, typer.Option(help="Number of seeds of the comparison.", min=1)] = 5,
    jobs: Annotated[int, typer.Option(help="Parallel processes.", min=1)] = 1,
    scheduler: Scheduler = None,
    seed: Annotated[
        int, typer.Option(help="The first seed, and the seed of the draw.", min=0)
    ] = 42,
    output: Annotated[Path, typer.Option(help="Folder for tables.json.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurements.")] = False,
) -> None:
    """Choose settings for small tables and compare them with MLPClassifier on held-out rows.

    Writes tables.json, with every candidate that was tried. Exit code 1 if the mean rank over the
    tables is not better than MLPClassifier's.

    \b
    Examples:
      toreqprop tables
      toreqprop tables iris wine --seeds 2
      toreqprop tables --candidates 3
    """
    from toreqprop import checks
    from toreqprop.bench import table_study as study
    from toreqprop.evidence import environment
    from toreqprop.tasks.public_tables import PUBLIC_TABLES

    for name in names or ():
        checks.choice("table", name, tuple(PUBLIC_TABLES))
    chosen_tables = list(names or PUBLIC_TABLES)
    used = tuple(range(seed, seed + seeds))
    drawn = study.candidates(candidates, seed, study.present())
    tried: list[Tried] = []
    console = Console(stderr=True, highlight=False)
    with Progress(console=console, transient=True) as progress:
        if candidates > 1:
            bar = progress.add_task("validation folds", total=len(drawn))

            def on_tried(one: Tried) -> None:
                progress.advance(bar)
                console.print(f"{study.mean_accuracy(one):.2%} with {one.settings}")

            tried = study.search(chosen_tables, drawn, on_tried, jobs=jobs, executor=scheduler)
        found_ranks = study.mean_ranks(tried)
        against = study.reference(chosen_tables) if tried else {}
        best = study.chosen(tried, against) if tried else drawn[0]
        bar = progress.add_task("held-out rows", total=len(chosen_tables))
        rows = study.compare(
            chosen_tables,
            best,
            used,
            lambda row: progress.advance(bar),
            jobs=jobs,
            executor=scheduler,
        )
    outcome = study.summary(rows)
    plain: dict[str, Any] = {
        "command": describe_command(names or [], candidates, seeds, seed),
        "aside": study.ASIDE,
        "folds": study.FOLDS,
        "seeds": used,
        "environment": environment(),
        "grid": study.GRID,
        "tried": [
            {**asdict(t), "mean_rank": rank} for t, rank in zip(tried, found_ranks, strict=True)
        ],
        "reference": against,
        "chosen": best,
        "summary": outcome,
        "comparisons": [row.as_dict() for row in rows],
    }
    path = output / "tables.json"
    write_atomically(path, json.dumps(plain, indent=2) + "\n")
    if as_json:
        typer.echo(json.dumps(plain, indent=2))
    else:
        _show(plain, path)
    raise typer.Exit(0 if outcome["passed"] else 1)


def describe_command(names: list[str], candidates: int, seeds: int, seed: int) -> str:
    """The command that gives these results."""
    more = [] if candidates == 1 else ["--candidates", str(candidates)]
    more += [] if seeds == 5 else ["--seeds", str(seeds)]
    more += [] if seed == 42 else ["--seed", str(seed)]
    return shlex.join(["toreqprop", "tables", *names, *more])


def _show(plain: dict[str, Any], path: Path) -> None:
    shown = Table("table", "rows", "classes", "chance", "EqProp", "MLP", title="test accuracy in %")
    for row in plain["comparisons"]:
        figures = (row["chance"], row["our_mean"], row["their_mean"])
        shown.add_row(
            row["table"],
            str(row["rows"]),
            str(row["classes"]),
            *(f"{100 * v:.1f}" for v in figures),
        )
    console = Console(highlight=False)
    console.print(shown)
    found = plain["summary"]
    console.print(
        f"mean rank {found['our_mean_rank']:.2f}, MLPClassifier's {found['their_mean_rank']:.2f}; "
        f"{found['won']} won, {found['drawn']} drawn, {found['lost']} lost; "
        f"settings {plain['chosen']}"
    )
    console.print(f"wrote {path}")
