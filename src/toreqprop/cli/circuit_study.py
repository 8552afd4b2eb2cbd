"""``toreqprop circuit study``: what is measured on resistive networks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from toreqprop import checks
from toreqprop.cli.names import CIRCUIT_STUDIES, starting


def study(
    name: Annotated[
        str,
        typer.Argument(
            help=f"One of {', '.join(CIRCUIT_STUDIES)}.", autocompletion=starting(CIRCUIT_STUDIES)
        ),
    ],
    seeds: Annotated[int, typer.Option(help="Of digits and in-situ.", min=1)] = 10,
    seed: Annotated[int, typer.Option(help="The first seed.", min=0)] = 0,
    jobs: Annotated[int, typer.Option(help="Parallel processes.", min=1)] = 1,
    output: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("results/circuits"),
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again what an earlier command finished.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurements.")] = False,
) -> None:
    """Measure resistive networks: MNIST, digits in PyTorch and ngspice, mismatch, random circuits.

    Writes one file with commit, command, environment and times. Stop it at any time and run it
    again: finished measurements are kept.

    \b
    Examples:
      toreqprop circuit study random
      toreqprop circuit study in-situ --seeds 10 --jobs 2
    """
    checks.choice("study", name, CIRCUIT_STUDIES)
    from toreqprop.bench.circuits.studies import STUDIES
    from toreqprop.cli.studies import StudyDisplay
    from toreqprop.evidence import run_study

    chosen = STUDIES[name]
    path = output / f"{name.replace('-', '_')}.json"
    with StudyDisplay(Console(stderr=True)) as display:
        plain = run_study(
            chosen.measurements(range(seed, seed + seeds)),
            chosen.assemble,
            command=f"toreqprop circuit study {name}"
            + f" --seeds {seeds}" * (seeds != 10)
            + f" --seed {seed}" * (seed != 0),
            path=path,
            processes=jobs,
            fresh=fresh,
            listener=display,
        )
    if as_json:
        typer.echo(json.dumps(plain, indent=2))
        return
    console = Console()
    for key, figures in plain.get("summary", {}).items():
        console.print(f"{key}: {figures['mean']:.2%} ± {figures['std']:.2%}", highlight=False)
    for key in ("test_accuracy", "worst_volts"):
        if key in plain:
            console.print(f"{key}: {plain[key]:.4g}", highlight=False)
    console.print(f"wrote {path}", highlight=False)
