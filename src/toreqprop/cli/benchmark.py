"""``toreqprop benchmark``: EP against backpropagation on every row, with statistics and report."""

from __future__ import annotations

import json
import os
import shutil
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from toreqprop.errors import InvalidInputError

if TYPE_CHECKING:
    from toreqprop.bench.plan import Plan

_NEEDED = ("scipy", "matplotlib", "jinja2", "gymnasium")


def benchmark(
    tasks: Annotated[
        str | None,
        typer.Option(help="Tasks to run, separated by commas; all by default."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds.")] = 3,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 42,
    jobs: Annotated[
        int | None, typer.Option(help="Parallel processes; by default one per core, at most 4.")
    ] = None,
    full_data: Annotated[
        bool, typer.Option("--full-data", help="All 60,000 images of MNIST and Fashion-MNIST.")
    ] = False,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder looked in first for data files.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder of the report; by default results (results/full with all data)."),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget runs finished by an earlier command.")
    ] = False,
    epochs: Annotated[
        int | None, typer.Option(help="Epochs instead of the tuned number: for a quick look.")
    ] = None,
    hyperparameters: Annotated[
        Path | None,
        typer.Option(help="A file written by `toreqprop tune`; by default the one that ships."),
    ] = None,
    controls: Annotated[
        bool | None,
        typer.Option(help="Run the negative controls; by default unless --full-data."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Compare EP with backpropagation on five tasks, in eight rows, and write the report.

    Stop it at any time and run it again: finished runs are kept. Exit code 1 if a check fails,
    nothing could run, or a run was not finished; a quick look with --epochs fails no check.

    \b
    Examples:
      toreqprop benchmark
      toreqprop benchmark --tasks digits,cartpole --seeds 5
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise InvalidInputError(
            f'The benchmark needs {", ".join(missing)}: run `pip install "toreqprop[bench]"`.'
        )
    from toreqprop.bench.display import Display
    from toreqprop.evidence import environment
    from toreqprop.bench.plan import make_plan
    from toreqprop.bench.reports import write_reports
    from toreqprop.bench.runner import run_all
    from toreqprop.bench.store import Store
    from toreqprop.bench.summary import summarise_benchmark
    from toreqprop.tasks import files

    started = time.monotonic()
    names = [name.strip() for name in tasks.split(",") if name.strip()] if tasks else None
    plan = make_plan(
        names,
        seeds,
        first_seed=seed,
        full=full_data,
        controls=controls,
        epochs=epochs,
        hyperparameters=hyperparameters,
    )
    processes = min(4, os.cpu_count() or 1) if jobs is None else jobs
    folder = Path("results/full" if full_data else "results") if output is None else output
    if data_dir is not None:
        os.environ[files.DATA_VARIABLE] = str(data_dir)  # the runs' processes inherit it
    store = Store(folder / ".partial")
    if fresh:
        shutil.rmtree(store.folder, ignore_errors=True)
    console = Console(soft_wrap=True, stderr=as_json)
    display = Display(console)
    try:
        with display:
            outcome = run_all(plan.runs(), store, processes, display)
    except KeyboardInterrupt:
        runs = plan.runs()
        kept = sum(store.load(run) is not None for run in runs)
        console.print(
            f"{kept} of {len(runs)} runs were finished and are kept in {store.folder}; the same "
            "command does the rest.",
            highlight=False,
        )
        raise
    command = describe_command(plan, names, seeds, controls)
    report = summarise_benchmark(plan, outcome, environment(), command)
    report["timing"] = {
        "command_seconds": time.monotonic() - started,
        "jobs": processes,
        "reused_runs": outcome.reused,
    }
    written = write_reports(report, folder)
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    _show(console, report)
    console.print("Written: " + ", ".join(str(path) for path in written), highlight=False)
    if report["status"] in ("FAIL", "NOT RUN") or outcome.lost:
        raise typer.Exit(1)


def describe_command(plan: Plan, tasks: list[str] | None, seeds: int, controls: bool | None) -> str:
    """The command that gives these results: all options that change them, and no folders."""
    from toreqprop.bench.plan import FIRST_SEED

    parts = ["toreqprop benchmark"]
    if tasks:
        parts.append(f"--tasks {','.join(tasks)}")
    parts.append(f"--seeds {seeds}")
    if plan.seeds[0] != FIRST_SEED:
        parts.append(f"--seed {plan.seeds[0]}")
    if plan.full:
        parts.append("--full-data")
    if plan.epochs is not None:
        parts.append(f"--epochs {plan.epochs}")
    if plan.hyperparameters is not None:
        parts.append(f"--hyperparameters {plan.hyperparameters.name}")
    if controls is not None:
        parts.append("--controls" if controls else "--no-controls")
    return " ".join(parts)


def _show(console: Console, report: dict[str, Any]) -> None:
    from toreqprop.bench.reports import interval, percent, signed

    table = Table("task", "backprop", "EP", "gap", "95 % interval", "status")
    styles = {"PASS": "green", "FAIL": "bold red"}
    quick = report["status"] == "QUICK LOOK"
    for task in report["tasks"]:
        status = "quick look" if quick else task["status"]
        style = styles.get(status, "yellow")
        cells = ["–"] * 4
        if task["status"] != "NOT RUN":
            gap = task["comparison"]["gap"]
            cells = [
                percent(task["models"]["backprop"]["accuracy"]),
                percent(task["models"]["ep"]["accuracy"]),
                signed(gap["mean"]),
                interval(gap),
            ]
        table.add_row(task["title"], *cells, f"[{style}]{status}[/]")
    console.print(table)
    if quick:
        console.print(
            f"A quick look at {report['epochs_override']} epochs decides nothing: leave out "
            "--epochs for a verdict.",
            style="yellow",
            highlight=False,
        )
        return
    for task in report["tasks"]:
        if task["status"] == "NOT RUN":
            console.print(f"{task['title']} was not run: {task['reason']}", markup=False)
    for part in report["tasks"] + report["controls"]:
        for check in part.get("checks", []):
            if not check["passed"]:
                console.print(
                    f"FAIL {part['title']}: {check['claim']} is {check['measured']:.3f}, "
                    f"bound {check['bound']:.3f}.",
                    style="red",
                    highlight=False,
                )
