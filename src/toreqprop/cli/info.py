"""``toreqprop info``: versions, what is installed, and every name a command takes."""

from __future__ import annotations

import json
import os
from importlib import util
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

EXTRAS = {
    "statsmodels": "bench",
    "gymnasium": "bench",
    "pooch": "bench",
    "matplotlib": "bench",
    "numba": "compiled",
    "optuna": "tune",
    "tensorboard": "tensorboard",
}


def info(
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Show versions, kernels, models, estimators, solvers, tasks and where data is kept.

    \b
    Examples:
      toreqprop info
      toreqprop info --json
    """
    facts = gather()
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    table = Table(title="TorEqProp", show_header=False)
    for name, value in facts.items():
        shown = ", ".join(value) if isinstance(value, list) else str(value)
        table.add_row(name, escape(shown))
    Console().print(table)


def gather() -> dict[str, Any]:
    """Everything the command shows, as plain data."""
    import platform
    from importlib import metadata

    import torch

    import toreqprop
    from toreqprop.checkpoint import NETWORKS
    from toreqprop.gradients import ESTIMATORS
    from toreqprop.kernels import KERNELS, compiled_available
    from toreqprop.solvers import SOLVERS
    from toreqprop.tasks import TASKS, files

    facts: dict[str, Any] = {
        "toreqprop": toreqprop.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }
    for package, extra in EXTRAS.items():
        present = util.find_spec(package) is not None
        facts[package] = (
            metadata.version(package) if present else f"missing: pip install toreqprop[{extra}]"
        )
    return facts | {
        "kernels": [k for k in KERNELS if k != "numba" or compiled_available()],
        "models": list(NETWORKS),
        "estimators": list(ESTIMATORS),
        "solvers": list(SOLVERS),
        "tasks": list(TASKS),
        "data folder": os.environ.get(files.DATA_VARIABLE) or f"{files.DATA_VARIABLE} is not set",
        "cache": _cache(),
    }


def _cache() -> str:
    from toreqprop.errors import DataUnavailableError
    from toreqprop.tasks import files

    try:
        return str(files.cache_folder())
    except DataUnavailableError as error:
        return str(error)
