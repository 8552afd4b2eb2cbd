"""``toreqprop info``: versions and what is installed."""

from __future__ import annotations

import json
from importlib import metadata, util
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

EXTRAS = {
    "statsmodels": "bench",
    "gymnasium": "bench",
    "pooch": "bench",
    "matplotlib": "bench",
    "numba": "compiled",
    "optuna": "tune",
}


def info(
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Show versions, threads and which optional parts are installed."""
    import torch

    import toreqprop

    facts: dict[str, str | int] = {
        "toreqprop": toreqprop.__version__,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }
    for package, extra in EXTRAS.items():
        present = util.find_spec(package) is not None
        facts[package] = (
            metadata.version(package) if present else f"missing: pip install toreqprop[{extra}]"
        )
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    table = Table(title="TorEqProp", show_header=False)
    for name, value in facts.items():
        table.add_row(name, str(value))
    Console().print(table)
