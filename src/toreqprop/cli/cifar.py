"""``toreqprop cifar``: CIFAR-10 by EP and by backprop, with the same convolutional layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from toreqprop import checks
from toreqprop.cli.names import CIFAR_METHODS, CIFAR_NETWORKS


def cifar(
    network: Annotated[
        str, typer.Option(help="pure, or hybrid: behind a feed-forward front.")
    ] = "pure",
    method: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(CIFAR_METHODS)}; by default both."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Instead of the study's own number.", min=1)
    ] = None,
    images: Annotated[
        int | None, typer.Option(help="So many of each part instead of all of them.", min=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of weights and order.", min=0)] = 42,
    seeds: Annotated[int, typer.Option(help="So many, from --seed on.", min=1)] = 1,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Train only what the file of results has not got, whatever code made the rest.",
        ),
    ] = False,
    output: Annotated[Path, typer.Option(help="Folder for JSON and figure.")] = Path("results"),
    jobs: Annotated[int, typer.Option(help="Parallel processes.", min=1)] = 1,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again what an earlier command finished.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurements.")] = False,
) -> None:
    """Train the same convolutional layers on CIFAR-10 by EP and by backprop, and test them once.

    Writes cifar10.json (of a hybrid cifar10_hybrid.json) with learning curves and certificates
    before, amid and after training, and a figure of the same name; what leaves out something has
    _partial in it. A seed takes 20 to 30 minutes of processor time. Stop it at any time and run it
    again: it goes on after the last finished epoch.

    \b
    Examples:
      toreqprop cifar
      toreqprop cifar --network hybrid --seeds 3
      toreqprop cifar --seeds 5 --keep
      toreqprop cifar --method ep --epochs 1 --images 2000
    """
    from toreqprop.bench.cifar import report, study
    from toreqprop.cli.studies import StudyDisplay
    from toreqprop.plots.style import need_matplotlib, save

    checks.choice("network", network, CIFAR_NETWORKS)
    for name in method or ():
        checks.choice("method", name, CIFAR_METHODS)
    need_matplotlib()  # before anything is trained
    with StudyDisplay(Console(stderr=True)) as display:
        found = study.run_cifar(
            output,
            network="hybrid" if network == "hybrid" else "pure",
            methods=[m for m in study.METHODS if not method or m in method],
            epochs=epochs,
            images=images,
            seed=seed,
            seeds=seeds,
            keep=keep,
            processes=jobs,
            fresh=fresh,
            listener=display,
        )
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        parts = (
            report.table_lines, report.share_lines, report.certificate_lines, report.check_lines,
        )  # fmt: skip
        texts = ["\n".join(lines(found)) for lines in parts]
        typer.echo("\n\n".join(filter(None, texts)))
    for kind in ("svg", "png"):
        save(report.curves_figure(found), output / f"{found['stem']}.{kind}")
