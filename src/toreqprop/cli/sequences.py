"""``toreqprop sequences``: transformers that settle reverse and sort."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def sequences(
    seeds: Annotated[int, typer.Option(help="How many, from --seed on.", min=1)] = 5,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 42,
    output: Annotated[Path, typer.Option(help="The file that is written.")] = Path(
        "results/sequences.json"
    ),
    jobs: Annotated[int, typer.Option(help="Parallel processes.", min=1)] = 1,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again what an earlier command finished.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurements.")] = False,
) -> None:
    """Train attention that relaxes to reverse up to 64 symbols and to sort eight, by EP.

    Exit code 1 where the worst seed of a row is worse than what the row had before.

    \b
    Examples:
      toreqprop sequences
      toreqprop sequences --seeds 1 --output trial.json
    """
    import torch

    from toreqprop.bench import sequences as study
    from toreqprop.cli.studies import StudyDisplay
    from toreqprop.evidence import run_study

    torch.set_num_threads(1)
    words = ["toreqprop", "sequences"]
    words += [] if seeds == study.SEEDS else ["--seeds", str(seeds)]
    words += [] if seed == 42 else ["--seed", str(seed)]
    with StudyDisplay(Console(stderr=True)) as display:
        found = run_study(
            study.measurements(range(seed, seed + seeds)),
            study.assemble,
            command=shlex.join(words),
            path=output,
            processes=jobs,
            fresh=fresh,
            listener=display,
        )
    typer.echo(json.dumps(found, indent=2) if as_json else "\n".join(study.render_markdown(found)))
    if any(check["passed"] is False for check in found["checks"]):
        raise typer.Exit(1)
