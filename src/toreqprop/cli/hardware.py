"""``toreqprop hardware``: will it learn on this chip, and how well did it?"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from toreqprop.atomic import write_atomically
from toreqprop.cli import names
from toreqprop.errors import InvalidInputError

if TYPE_CHECKING:
    from toreqprop.bench.hardware import faults
    from toreqprop.hardware import Device

app = typer.Typer(
    no_args_is_help=True,
    help="Networks on chips with faults: what a chip will do, and what it did.\n\n"
    "Example: toreqprop hardware budget chip.toml",
)

ChipFile = Annotated[Path, typer.Argument(help="TOML file that describes the device.")]
TaskName = Annotated[str, typer.Option("--task", help="digits or mnist (5,000 images).")]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def _recipe(task: str) -> Any:
    from toreqprop.bench.hardware.methods import RECIPES

    if task not in RECIPES:
        raise InvalidInputError(f"There is no recipe for {task!r}: choose {', '.join(RECIPES)}.")
    return RECIPES[task]


@app.command()
def budget(
    chip: ChipFile,
    task: TaskName = "digits",
    chips: Annotated[int, typer.Option(help="Chips to average over.", min=1)] = 1,
    samples: Annotated[int, typer.Option(help="Training samples to look at.", min=1)] = 64,
    figure: Annotated[Path | None, typer.Option(help="Picture of the error against β.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of data and weights.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Predict, before any training, the best nudge on a chip and how wrong its gradient will be.

    \b
    Examples:
      toreqprop hardware budget chip.toml
      toreqprop hardware budget chip.toml --chips 20 --figure budget.svg
    """
    from toreqprop import plots
    from toreqprop.bench.hardware.methods import final_split
    from toreqprop.hardware import budget as predict
    from toreqprop.hardware import on
    from toreqprop.hardware.device_files import read_device
    from toreqprop.plots.devices import budget_figure
    from toreqprop.plots.style import check_format, need_matplotlib

    if figure is not None:
        check_format(figure)
        need_matplotlib()
    recipe, data = _recipe(task), final_split(task, seed)
    model = on(read_device(chip), recipe.network(seed))
    found = predict(model, data.x[:samples], data.y[:samples], loss=recipe.loss, chips=chips)
    if figure is not None:
        curve = [{"beta": b, "error": t.error, "terms": asdict(t)} for b, t in found.curve]
        plots.save(budget_figure({"beta": found.beta, "curve": curve}), figure)
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=2))
        return
    Console(soft_wrap=True).print(str(found), highlight=False)


@app.command()
def device(
    table: Annotated[Path, typer.Argument(help="CSV with kind,unit,applied,measured.")],
    output: Annotated[Path, typer.Option(help="TOML file to write.")] = Path("chip.toml"),
    seed: Annotated[int, typer.Option(help="Which chip of such devices.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Describe a device from measurements of its weights and neurons.

    \b
    Examples:
      toreqprop hardware device measured.csv --output chip.toml
    """
    from toreqprop.hardware.device_files import device_text, measured_device

    found = measured_device(table, seed)
    text = device_text(found)
    write_atomically(output, text)
    if as_json:
        facts = {name: str(value) for name, value in found.faults()}
        typer.echo(json.dumps({"file": str(output), "faults": facts}, indent=2))
        return
    Console(soft_wrap=True).print(f"{found}\nWrote {output}.", highlight=False, markup=False)


@app.command()
def sweep(
    task: TaskName = "digits",
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
    seeds: Annotated[int, typer.Option(help="Seeds, and as many chips.", min=1)] = 10,
    noise_map: Annotated[
        bool, typer.Option("--map", help="Noise against resolution, in situ.")
    ] = False,
    output: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("results/hardware"),
    report_only: Annotated[
        bool, typer.Option("--report", help="Write the reports of what was measured.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Accuracy under faults: EP in situ against deployment, hardware-aware and frozen controls.

    Every cell is kept as soon as it is measured; the same command goes on where it was ended.
    Recipes are chosen on held-out training data, once, without faults.

    \b
    Examples:
      toreqprop hardware sweep
      toreqprop hardware sweep --fault drift --seeds 3
      toreqprop hardware sweep --device chip.toml --method frozen
      toreqprop hardware sweep --map --seeds 2
      toreqprop hardware sweep --report
    """
    from toreqprop import plots
    from toreqprop.bench.hardware import report
    from toreqprop.bench.hardware.methods import METHODS
    from toreqprop.bench.hardware.sweep import load
    from toreqprop.bench.hardware.sweep import sweep as run_sweep
    from toreqprop.plots.devices import faults_figure, map_figure
    from toreqprop.plots.style import need_matplotlib

    need_matplotlib()
    recipe, path = _recipe(task), output / f"{task}.json"
    chosen_methods = _methods(method)
    if not report_only:
        points = _points(fault or [], chip, noise_map)
        total = len(points) * seeds * (1 if noise_map else len(chosen_methods))
        with Progress(console=Console(stderr=True), transient=True) as progress:
            bar = progress.add_task("sweep", total=total)

            def news(text: str) -> None:
                progress.update(bar, description=text, advance=0 if text.startswith("s") else 1)

            methods = METHODS[:1] if noise_map else chosen_methods
            run_sweep(path, recipe, points, methods, range(seed, seed + seeds), news)
    kept = load(path)
    if not kept["cells"]:
        raise InvalidInputError(f"Nothing was measured in {path} yet: leave out --report.")
    if noise_map:
        kept["map_errors"] = _map_errors(kept, recipe)
    paths = report.write_reports(kept, output, task)
    found = report.summary(kept)
    for suffix in ("svg", "png"):
        paths.append(plots.save(faults_figure(found), output / f"{task}.{suffix}"))
    grid = report.noise_map(kept, kept.get("map_errors"))
    if grid is not None and grid["error"]:
        paths.append(plots.save(map_figure(grid), output / f"{task}-map.svg"))
        write_atomically(output / f"{task}-map.json", json.dumps(grid, indent=2) + "\n")
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    console = Console(soft_wrap=True)
    for line in report.table_lines(found):
        console.print(line, highlight=False, markup=False)
    console.print("Wrote " + ", ".join(str(p) for p in paths) + ".", highlight=False)


def _methods(names: list[str] | None) -> Any:
    from toreqprop.bench.hardware.methods import METHODS

    for name in names or []:
        if name not in METHODS:
            raise InvalidInputError(f"There is no method {name!r}: choose {', '.join(METHODS)}.")
    return tuple(m for m in METHODS if not names or m in names)


def _points(names: list[str], chip: Path | None, noise_map: bool) -> tuple[faults.Fault, ...]:
    from toreqprop.bench.hardware import faults
    from toreqprop.hardware.device_files import read_device

    if noise_map:
        return faults.MAP
    if chip is None:
        return faults.named(names)
    found: Device = read_device(chip)
    return (faults.Fault("device", chip.stem, found),)


def _map_errors(kept: dict[str, Any], recipe: Any) -> list[list[float]]:
    """The budget's error of every point of the map, before training, at its best β."""
    import torch

    from toreqprop.bench.hardware import faults
    from toreqprop.bench.hardware.methods import final_split
    from toreqprop.bench.hardware.sweep import chosen
    from toreqprop.hardware import budget as predict
    from toreqprop.hardware import on

    ready = chosen(recipe, kept["search"])["EP"]
    data, errors = final_split(ready.task, 0), []
    for point in faults.MAP:
        model = on(point.chip(0), ready.network(0))
        torch.manual_seed(0)
        errors.append(predict(model, data.x[:64], data.y[:64], loss=ready.loss).error)
    width = len(faults.MAP_BITS)
    return [errors[i : i + width] for i in range(0, len(errors), width)]
