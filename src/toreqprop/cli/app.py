"""Where the commands come together; each lives in a file named after it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from toreqprop.cli import (
    benchmark,
    certify,
    data,
    estimators,
    info,
    memory,
    plot,
    speed,
    train,
    tune,
    verify,
)
from toreqprop.errors import TorEqPropError

app = typer.Typer(
    name="toreqprop",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def settings(
    threads: Annotated[
        int, typer.Option(help="Threads per process; more rarely help networks this small.")
    ] = 1,
) -> None:
    """Equilibrium propagation: train networks without backpropagation."""
    import torch

    torch.set_num_threads(threads)


app.add_typer(data.app, name="data")
app.add_typer(plot.app, name="plot")
app.command()(train.train)
app.command()(certify.certify)
app.command()(estimators.estimators)
app.command()(estimators.sweep_beta)
app.command()(speed.speed)
app.command()(memory.memory)
app.command()(info.info)
app.command()(benchmark.benchmark)
app.command()(tune.tune)
app.command()(verify.verify)


def main() -> None:
    """Run the program; a mistake of the user's ends in one sentence and exit code 2."""
    try:
        app()
    except TorEqPropError as error:
        Console(stderr=True).print(f"[bold red]Error:[/] {error}", highlight=False)
        sys.exit(2)
    except KeyboardInterrupt:
        Console(stderr=True).print("Stopped.")
        sys.exit(130)
