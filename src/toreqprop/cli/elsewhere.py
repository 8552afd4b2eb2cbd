"""The option of every command whose work may be done on other machines."""

from __future__ import annotations

from typing import Annotated

import typer

Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        help="Address of a dask scheduler, such as tcp://10.0.0.1:8786: its workers do the work.",
        metavar="ADDRESS",
    ),
]
