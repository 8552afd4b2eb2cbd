"""``toreqprop play``: a page on which a network settles while one looks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from toreqprop.errors import InvalidInputError

if TYPE_CHECKING:
    from toreqprop.sklearn.scaling import Scaling
    from toreqprop.tasks import Dataset


def play(
    checkpoint: Annotated[
        Path | None,
        typer.Argument(help="Folder of a network to show; by default the one that ships."),
    ] = None,
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("play.html"),
    open_: Annotated[bool, typer.Option("--open/--no-open", help="Show it in a browser.")] = True,
    train: Annotated[
        Path | None,
        typer.Option(help="Train the page's own networks again into this folder, and show them."),
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder with data files.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of --train.")] = 42,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Write a page to play with: a network settles in the browser, is nudged, hurt and unbound.

    The page is one file that needs neither a server nor a network. CHECKPOINT is what `toreqprop
    train` wrote for digits, mnist or fashion with the model looped or hopfield.

    \b
    Examples:
      toreqprop play
      toreqprop play --no-open --out lecture.html
      toreqprop play run --out run.html
      toreqprop play --train networks --seed 7
    """
    import webbrowser

    from toreqprop.atomic import write_atomically
    from toreqprop.play import page as pages
    from toreqprop.play import recipes

    console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    if train is not None:
        if checkpoint is not None:
            raise InvalidInputError("--train makes its own networks: leave out the checkpoint.")
        recipes.build(train, seed, lambda part: console.print(f"training {part}"))
    networks = pages.shipped_data(recipes.FOLDER if train is None else train)
    if checkpoint is not None:
        networks["digits"] = _shown(checkpoint, data_dir)
    text = pages.page(networks)
    try:
        write_atomically(out, text)
    except OSError as error:
        raise InvalidInputError(f"{out} cannot be written: {error.strerror}.") from None
    facts: dict[str, Any] = {
        "page": str(out),
        "bytes": len(text.encode()),
        "networks": {name: found["record"] for name, found in networks.items()},
    }
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    else:
        console.print(f"Wrote {out} ({facts['bytes'] / 1000:.0f} kB); any browser opens it.")
    if open_:
        webbrowser.open(out.resolve().as_uri())


def _shown(folder: Path, data_dir: Path | None) -> dict[str, Any]:
    """A checkpoint of `toreqprop train`, as the page takes it."""
    from toreqprop import checkpoint as checkpoints
    from toreqprop.cli.predictor import restore
    from toreqprop.cli.samples import read_task
    from toreqprop.models import EquilibriumModel
    from toreqprop.play import page as pages
    from toreqprop.tasks import TASKS

    stored = checkpoints.load(folder)
    predictor = restore(stored)
    source = stored.about.get("data")
    name = source.get("name") if isinstance(source, dict) else None
    if not isinstance(stored.model, EquilibriumModel) or name not in TASKS:
        raise InvalidInputError(
            "The page shows networks that settle, trained on digits, mnist or fashion, and that in "
            f"{folder} is none: make one with `toreqprop train digits --output {folder}`."
        )
    seed = stored.about["training"]["seed"]
    data = _scaled(read_task(name, seed, False, data_dir), predictor.scaling)
    return pages.classifier_data(stored.model, data, f"toreqprop train {name} --seed {seed}")


def _scaled(data: Dataset, scaling: Scaling) -> Dataset:
    """The task's data in the scaling the network was trained with."""
    from dataclasses import replace

    import numpy as np

    from toreqprop.tasks import Standardiser

    mean, scale = (np.asarray(v, np.float32) for v in (scaling.mean, scaling.scale))
    own = Standardiser(mean, scale, data.standardiser.floor)
    train, test = (own(data.standardiser.invert(x)) for x in (data.train_x, data.test_x))
    return replace(data, standardiser=own, train_x=train, test_x=test)
