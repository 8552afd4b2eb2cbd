"""``toreqprop scale``: what two processes bring to one training, and a plan for many."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from toreqprop.atomic import write_atomically


def scale(
    task: Annotated[str, typer.Option(help="A task (see `toreqprop info`).")] = "mnist",
    model: Annotated[str, typer.Option(help="A model (see `toreqprop info`).")] = "conv",
    epochs: Annotated[int, typer.Option(help="Passes of each training.", min=1)] = 1,
    rounds: Annotated[int, typer.Option(help="Trainings of each kind, in turn.", min=1)] = 2,
    seed: Annotated[int, typer.Option(help="Of weights, split and order.", min=0)] = 0,
    latency: Annotated[
        float | None, typer.Option(help="Seconds of a message, else as measured here.", min=0)
    ] = None,
    bandwidth: Annotated[
        float | None, typer.Option(help="Bytes a second, else as measured here.", min=1)
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder for scaling.json.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurements.")] = False,
) -> None:
    """Train in one and in two processes, measure a step and an all-reduce, and plan for more.

    Wants an idle machine with two cores. Exit code 1 if the two trainings differ by more than a
    point of test accuracy.

    \b
    Examples:
      toreqprop scale
      toreqprop scale --task digits --model looped --epochs 5
      toreqprop scale --latency 5e-5 --bandwidth 1.25e9
    """
    import time

    import torch

    from toreqprop.bench import workers as study
    from toreqprop.checks import choice
    from toreqprop.evidence import provenance
    from toreqprop.models import MODELS
    from toreqprop.tasks import TASKS

    choice("task", task, tuple(TASKS))
    choice("model", model, tuple(MODELS))
    torch.set_num_threads(1)
    started = time.time()
    console = Console(stderr=True, highlight=False)
    plain = study.measure(
        task, model, epochs=epochs, rounds=rounds, seed=seed, latency=latency,
        bandwidth=bandwidth, on_part=console.print,
    )  # fmt: skip
    kinds = f"--task {task} --model {model} --epochs {epochs} --rounds {rounds} --seed {seed}"
    plain |= provenance(f"toreqprop scale {kinds}", started)
    path = output / "scaling.json"
    write_atomically(path, json.dumps(plain, indent=2) + "\n")
    if as_json:
        typer.echo(json.dumps(plain, indent=2))
    else:
        _show(plain, path)
    scores = [t["accuracy"] for t in plain["trainings"]]
    raise typer.Exit(int(max(scores) - min(scores) > 0.01))


def _show(plain: dict[str, Any], path: Path) -> None:
    console = Console(soft_wrap=True, highlight=False)
    table = Table("workers", "step, same batch each", "speed-up", "step, one batch", "speed-up")
    for row in plain["plan"]:
        table.add_row(
            str(row["workers"]),
            f"{1e3 * row['weak_seconds']:.1f} ms",
            f"{row['weak_speedup']:.1f}",
            f"{1e3 * row['strong_seconds']:.1f} ms",
            f"{row['strong_speedup']:.1f}",
        )
    console.print(table)
    first = plain["trainings"][:2]
    console.print(
        f"Measured with two processes: {plain['speedup']:.2f} times as fast, test accuracy "
        f"{first[0]['accuracy']:.2%} in one and {first[1]['accuracy']:.2%} in two."
    )
    console.print(f"Written: {path}")
