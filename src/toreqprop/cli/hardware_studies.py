"""``toreqprop hardware sweep|pulsed|grid``: the studies of chips, each resumable."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from toreqprop.atomic import write_atomically
from toreqprop.cli import names
from toreqprop.cli.elsewhere import Scheduler
from toreqprop.errors import InvalidInputError

if TYPE_CHECKING:
    from toreqprop.bench.hardware.display import Display
    from toreqprop.bench.hardware.faults import Fault
    from toreqprop.bench.hardware.methods import Method
    from toreqprop.bench.hardware.plan import Plan

Jobs = Annotated[
    int | None, typer.Option(help="Parallel processes; by default one per core, at most 4.")
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Measure again what an earlier command finished.")
]
Output = Annotated[Path, typer.Option(help="Folder of the results.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
RESULTS = Path("results/hardware")


def sweep(
    task: Annotated[str, typer.Option("--task", help="digits or mnist (5,000 images).")] = "digits",
    fault: Annotated[
        list[str] | None, typer.Option(help="A fault or a kind of faults; may be repeated.")
    ] = None,
    chip: Annotated[
        Path | None, typer.Option("--device", help="A TOML file: this device instead of faults.")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help=f"Of {', '.join(names.DEVICE_METHODS)}.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The first seed.", min=0)] = 0,
    seeds: Annotated[
        int | None, typer.Option(help="Seeds, and as many chips, of every fault.", min=1)
    ] = None,
    noise_map: Annotated[
        bool, typer.Option("--map", help="Noise against resolution, in situ.")
    ] = False,
    output: Output = RESULTS,
    jobs: Jobs = None,
    scheduler: Scheduler = None,
    fresh: Fresh = False,
    report_only: Annotated[
        bool,
        typer.Option("--report", help="Tables, figures, page and verdicts of the kept report."),
    ] = False,
    so_far: Annotated[
        bool,
        typer.Option("--so-far", help="Report the cells that are finished, measure no others."),
    ] = False,
    add: Annotated[
        bool,
        typer.Option("--add", help="Take over all that the kept report has, measure the rest."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Accuracy under faults: EP in situ against deployment, hardware-aware and frozen controls.

    Stop it at any time and run it again: finished cells are kept, and used again where code,
    settings, data and versions are the same. Settings are chosen on held-out training data and
    other chips, for every method alike. Exit code 1 where a claim fails.

    \b
    Examples:
      toreqprop hardware sweep
      toreqprop hardware sweep --task mnist
      toreqprop hardware sweep --fault drift --seeds 3
      toreqprop hardware sweep --device chip.toml --seeds 3
      toreqprop hardware sweep --map
      toreqprop hardware sweep --task mnist --add
      toreqprop hardware sweep --report
    """
    from toreqprop.bench.hardware import report
    from toreqprop.bench.hardware.sweep import judged, map_report, run_sweep
    from toreqprop.plots.style import need_matplotlib

    need_matplotlib()
    plan = _plan(task, fault or [], chip, method, noise_map, seed, seeds)
    console = Console(soft_wrap=True, stderr=as_json)
    stem = _stem(plan, noise_map)
    if report_only:
        found = _kept(output / f"{stem}.json")
        found = found if noise_map else judged(found)
    else:
        with _display(console, "cells", lambda r: f"{r['accuracy']:.1f} %") as display:
            found = run_sweep(
                plan,
                output,
                processes=_processes(jobs),
                fresh=fresh,
                listener=display,
                so_far=so_far,
                kept=_kept(output / f"{task}.json") if add else None,
                executor=scheduler,
            )
        found = map_report(found) if noise_map else found
    write = report.write_map if noise_map else report.write_sweep
    paths = write(found, output, stem)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    lines = report.map_lines(found) if noise_map else report.table_lines(found)
    stated = [] if noise_map or not plan.whole else ["", *report.claim_lines(found)]
    _print(console, [*lines, *stated, "Wrote " + ", ".join(str(p) for p in paths) + "."])
    if any(claim["verdict"] == "FAIL" for claim in found.get("claims", [])):
        raise typer.Exit(1)


def pulsed(
    output: Output = RESULTS,
    seeds: Annotated[int, typer.Option(help="Seeds, and as many samples of devices.", min=2)] = 5,
    seed: Annotated[int, typer.Option(help="The first seed.", min=0)] = 0,
    jobs: Jobs = None,
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Digits with weights programmed by pulses, on every preset, with and without Tiki-Taka.

    \b
    Examples:
      toreqprop hardware pulsed
    """
    from toreqprop.bench.hardware import pulsed as study
    from toreqprop.bench.hardware.report import pulsed_lines

    console = Console(soft_wrap=True, stderr=as_json)
    with _display(console, "runs", lambda r: f"{r['accuracy']:.1f} %") as display:
        found = study.run_pulsed(
            output, seeds=seeds, seed=seed, processes=_processes(jobs), fresh=fresh,
            listener=display,
        )  # fmt: skip
    _finish(console, found, output / "pulsed.json", pulsed_lines(found), as_json)


def grid(
    output: Output = RESULTS,
    seed: Annotated[int, typer.Option(help="Of networks, chips and draws.", min=0)] = 0,
    jobs: Jobs = None,
    fresh: Fresh = False,
    as_json: AsJson = False,
) -> None:
    """Hold the budget's predictions against measured gradient errors, over a grid of devices.

    Exit code 1 where a prediction is off by more than a factor of 1.5.

    \b
    Examples:
      toreqprop hardware grid
    """
    from toreqprop.bench.hardware.budget_grid import run_grid
    from toreqprop.bench.hardware.report import budget_lines

    console = Console(soft_wrap=True, stderr=as_json)
    with _display(console, "devices", lambda r: f"limited by {r['limit']}") as display:
        found = run_grid(
            output, seed=seed, processes=_processes(jobs), fresh=fresh, listener=display
        )
    _finish(console, found, output / "budget.json", budget_lines(found), as_json)
    if found["verdict"] != "PASS":
        raise typer.Exit(1)


def _finish(
    console: Console, found: dict[str, Any], path: Path, lines: list[str], as_json: bool
) -> None:
    write_atomically(path, json.dumps(found, indent=1, allow_nan=False) + "\n")
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    _print(console, [*lines, f"Wrote {path}."])


def _print(console: Console, lines: list[str]) -> None:
    for line in lines:
        console.print(line, highlight=False, markup=False)


def _display(console: Console, what: str, say: Callable[[dict[str, Any]], str]) -> Display[Any]:
    from toreqprop.bench.hardware.display import Display

    return Display(console, what, say)


def _processes(jobs: int | None) -> int:
    return min(4, os.cpu_count() or 1) if jobs is None else jobs


def _plan(
    task: str,
    faults: list[str],
    chip: Path | None,
    methods: list[str] | None,
    noise_map: bool,
    seed: int,
    seeds: int | None,
) -> Plan:
    from toreqprop.bench.hardware.methods import METHODS, RECIPES
    from toreqprop.bench.hardware.plan import Plan

    if task not in RECIPES:
        raise InvalidInputError(f"There is no recipe for {task!r}: choose {', '.join(RECIPES)}.")
    chosen = METHODS[:1] if noise_map else _methods(methods)
    return Plan(RECIPES[task], _points(faults, chip, noise_map), chosen, seeds, seed)


def _stem(plan: Plan, noise_map: bool) -> str:
    """A report that is not whole never takes the place of one that is."""
    task = plan.base.task
    if noise_map:
        return (
            f"{task}-map" if (plan.seeds, plan.first_seed) == (None, 0) else f"{task}-map-partial"
        )
    return task if plan.whole else f"{task}-partial"


def _kept(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        raise InvalidInputError(f"There is no report in {path}: leave out --report.") from None
    return found


def _methods(given: list[str] | None) -> tuple[Method, ...]:
    from toreqprop.bench.hardware.methods import METHODS

    for name in given or []:
        if name not in METHODS:
            raise InvalidInputError(f"There is no method {name!r}: choose {', '.join(METHODS)}.")
    return tuple(m for m in METHODS if not given or m in given)


def _points(given: list[str], chip: Path | None, noise_map: bool) -> tuple[Fault, ...]:
    from toreqprop.bench.hardware import faults
    from toreqprop.hardware.device_files import read_device

    if noise_map:
        return faults.MAP
    if chip is None:
        return faults.named(given)
    # Of one's own chip nothing is claimed, but every method gets its search.
    return (faults.Fault("device", chip.stem, read_device(chip), claimed=True),)
