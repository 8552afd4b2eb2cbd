"""``toreqprop language``: a character model by EP, by the implicit gradient and by backprop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from toreqprop import checks
from toreqprop.cli.names import LANGUAGE_METHODS


def language(
    method: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(LANGUAGE_METHODS)}; by default all."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many, from --seed on.", min=1)] = 5,
    seed: Annotated[int, typer.Option(help="The first seed.", min=0)] = 0,
    updates: Annotated[
        int | None, typer.Option(help="Of a network, instead of the study's own number.", min=2)
    ] = None,
    search: Annotated[
        bool, typer.Option("--search", help="Try the rates on validation text, on a seed apart.")
    ] = False,
    output: Annotated[Path, typer.Option(help="Folder for JSON and figure.")] = Path("results"),
    jobs: Annotated[int, typer.Option(help="Parallel processes.", min=1)] = 1,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again what an earlier command finished.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurements.")] = False,
) -> None:
    """Learn Shakespeare character by character: causal attention that settles, and a plain twin.

    Writes language.json with bits per character of works held out, learning curves, certificates,
    verdicts and samples, language.svg and language.png; what leaves out a network or is shorter is
    called language_partial. Stop it at any time and run it again: finished trainings are kept. Exit
    code 1 where a check fails.

    \b
    Examples:
      toreqprop language
      toreqprop language --method ep --seeds 1 --updates 50
      toreqprop language --search
    """
    from toreqprop.bench.language import report, study
    from toreqprop.cli.studies import StudyDisplay
    from toreqprop.plots.style import need_matplotlib, save

    for name in method or ():
        checks.choice("method", name, LANGUAGE_METHODS)
    need_matplotlib()  # before anything is trained
    methods = [m for m in LANGUAGE_METHODS if not method or m in method]
    with StudyDisplay(Console(stderr=True)) as display:
        if search:
            found = study.run_search(
                output,
                methods=methods,
                updates=study.SEARCHED_UPDATES if updates is None else updates,
                processes=jobs,
                fresh=fresh,
                listener=display,
            )
        else:
            found = study.run_language(
                output,
                methods=methods,
                seeds=seeds,
                first_seed=seed,
                updates=study.UPDATES if updates is None else updates,
                processes=jobs,
                fresh=fresh,
                listener=display,
            )
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    elif search:
        typer.echo("\n".join(report.search_lines(found["trials"])))
    else:
        parts = (
            *(report.table_lines, report.gap_lines, report.certificate_lines),
            *(report.settling_lines, report.check_lines, report.sample_lines),
        )
        typer.echo("\n\n".join("\n".join(lines(found)) for lines in parts))
    if search:
        return
    for kind in ("svg", "png"):
        save(report.curves_figure(found), output / f"{found['stem']}.{kind}")
    if found["verdict"] == "FAIL":
        raise typer.Exit(1)
