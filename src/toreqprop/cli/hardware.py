"""``toreqprop hardware``: will it learn on this chip, and how well did it?"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from toreqprop.atomic import write_atomically
from toreqprop.cli.hardware_studies import grid, pulsed, sweep
from toreqprop.errors import InvalidInputError

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


app.command()(sweep)
app.command()(pulsed)
app.command()(grid)
