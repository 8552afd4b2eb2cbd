"""``toreqprop benchmark``: EP against backpropagation on every row, with statistics and report."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from toreqprop.cli.elsewhere import Scheduler
from toreqprop.errors import InvalidInputError

if TYPE_CHECKING:
    from toreqprop.bench.benchmark import BenchmarkReport

_NEEDED = ("scipy", "statsmodels", "matplotlib", "jinja2", "gymnasium")


def benchmark(
    tasks: Annotated[
        str | None, typer.Option(help="Rows to run, separated by commas; all by default.")
    ] = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="As many seeds as the verdicts need, and rows of all images."),
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(help="Number of seeds instead of the level's (quick: 3).")
    ] = None,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 42,
    jobs: Annotated[
        int | None, typer.Option(help="Parallel processes; by default one per core, at most 4.")
    ] = None,
    scheduler: Scheduler = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder looked in first for data files.")
    ] = None,
    output: Annotated[
        Path, typer.Option(help="Folder of the reports; each level has its own in benchmark/.")
    ] = Path("results"),
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Run again what an earlier command finished.")
    ] = False,
    epochs: Annotated[
        int | None, typer.Option(help="Epochs instead of the tuned number: for a quick look.")
    ] = None,
    hyperparameters: Annotated[
        Path | None,
        typer.Option(help="A file written by `toreqprop tune`; by default the one that ships."),
    ] = None,
    controls: Annotated[
        bool, typer.Option(help="Run the negative controls and the sensitivity study.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Compare EP with backpropagation on five tasks and write the report.

    Stop it at any time and run it again: finished runs are kept, and resumed where code, settings,
    data and versions are the same. Exit code 1 if a check fails, EP is worse in some row, nothing
    could run, or a run was not finished; not if the seeds are too few to show anything.

    \b
    Examples:
      toreqprop benchmark
      toreqprop benchmark --full
      toreqprop benchmark --tasks digits,cartpole --seeds 5
      toreqprop benchmark --full --scheduler tcp://10.0.0.1:8786
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise InvalidInputError(
            f'The benchmark needs {", ".join(missing)}: run `pip install "toreqprop[bench]"`.'
        )
    from toreqprop.bench.benchmark import KEPT, run_benchmark
    from toreqprop.bench.display import Display
    from toreqprop.bench.plan import make_plan
    from toreqprop.evidence import Store
    from toreqprop.tasks import files

    names = [name.strip() for name in tasks.split(",") if name.strip()] if tasks else None
    plan = make_plan(
        names,
        full=full,
        seeds=seeds,
        first_seed=seed,
        controls=controls,
        epochs=epochs,
        hyperparameters=hyperparameters,
    )
    if data_dir is not None:
        os.environ[files.DATA_VARIABLE] = str(data_dir)  # the runs' processes inherit it
    console = Console(soft_wrap=True, stderr=as_json)
    display = Display(console)
    processes = min(4, os.cpu_count() or 1) if jobs is None else jobs
    try:
        with display:
            report, written = run_benchmark(
                plan,
                processes=processes,
                output=output,
                fresh=fresh,
                listener=display,
                executor=scheduler,
            )
    except KeyboardInterrupt:
        runs, store = plan.runs(), Store(output / KEPT)
        kept = sum(store.load(run) is not None for run in runs)
        console.print(
            f"{kept} of {len(runs)} runs were finished and are kept in {store.folder}; the same "
            "command does the rest.",
            highlight=False,
        )
        raise
    if as_json:
        typer.echo(json.dumps(report.as_dict(), indent=2))
    _show(console, report)
    console.print("Written: " + ", ".join(str(path) for path in written), highlight=False)
    if not report.passed:
        raise typer.Exit(1)


def _show(console: Console, report: BenchmarkReport) -> None:
    from dataclasses import asdict

    from toreqprop.bench.insights import conclusion
    from toreqprop.bench.reports import interval, percent, signed

    quick = report.plan.epochs is not None
    styles = {"PASS": "green", "FAIL": "bold red"}
    table = Table("row", "baseline", "EP", "gap", "95 % interval", "verdict", "status")
    for row in report.rows:
        status = "quick look" if quick else row.status
        gap = asdict(row.comparison.gap)
        table.add_row(
            row.title,
            percent(asdict(row.arms[row.against].accuracy)),
            percent(asdict(row.arms["ep"].accuracy)),
            signed(gap["mean"]),
            interval(gap),
            f"{row.verdict.lower()} (±{row.margin:g})",
            f"[{styles.get(status, 'yellow')}]{status}[/]",
        )
    console.print(table)
    for name, reason in report.not_run.items():
        console.print(f"{name} was not run: {reason}", markup=False, highlight=False)
    if quick:
        console.print(
            f"A quick look at {report.plan.epochs} epochs decides nothing: leave out --epochs for "
            "a verdict.",
            style="yellow",
            highlight=False,
        )
        return
    checks = [(row.title, check) for row in report.rows for check in row.checks]
    checks += [(control.name, check) for control in report.controls for check in control.checks]
    for title, check in checks:
        if not check.passed:
            measured = "–" if check.measured is None else f"{check.measured:.3f}"
            console.print(
                f"FAIL {title}: {check.claim} is {measured}, bound {check.bound:.3f}.",
                style="red",
                highlight=False,
            )
    console.print(conclusion(report.rows), markup=False, highlight=False)
