"""``toreqprop completion``: digits of which a part is hidden, completed by settling."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from toreqprop import checks
from toreqprop.cli.names import COMPLETION_METHODS

FILE = Path("results/completion.json")


def completion(
    method: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(COMPLETION_METHODS)}; by default all."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many, from --seed on.", min=1)] = 5,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 42,
    gradients: Annotated[
        bool, typer.Option(help="Also measure gradients along a training without a bound.")
    ] = True,
    search: Annotated[
        Path | None,
        typer.Option(help="Try settings on validation images instead; lines are added to it."),
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option(help="With --search: a setting, such as rate=0.01.")
    ] = None,
    output: Annotated[Path, typer.Option(help="The file that is written.")] = FILE,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again what an earlier command finished.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurements.")] = False,
) -> None:
    """Train with half of the pixels hidden, test with a quarter to three quarters, and compare.

    \b
    Examples:
      toreqprop completion
      toreqprop completion --method ep --method twin --seeds 1 --no-gradients --output trial.json
      toreqprop completion --method ep --search results/completion_search.jsonl --change rate=0.01
    """
    import torch

    from toreqprop.bench import completion as study
    from toreqprop.bench import completion_gradients
    from toreqprop.bench.completion_report import assembled, render_markdown
    from toreqprop.cli.studies import StudyDisplay
    from toreqprop.evidence import run_study

    for name in method or ():
        checks.choice("method", name, COMPLETION_METHODS)
    methods, numbers = tuple(method or COMPLETION_METHODS), range(seed, seed + seeds)
    torch.set_num_threads(1)
    if search is not None:
        for trial in study.search(methods, numbers, change or ()):
            with search.open("a") as file:
                file.write(json.dumps(trial) + "\n")
            typer.echo(json.dumps(trial))
        return
    jobs = study.measurements(methods, numbers)
    jobs += completion_gradients.measurements() if gradients else []
    with StudyDisplay(Console(stderr=True)) as display:
        plain = run_study(
            jobs, assembled, command=_command(method or [], seeds, seed, gradients), path=output,
            fresh=fresh, listener=display,
        )  # fmt: skip
    typer.echo(json.dumps(plain, indent=2) if as_json else "\n".join(render_markdown(plain)))


def _command(methods: list[str], seeds: int, seed: int, gradients: bool) -> str:
    words = ["toreqprop", "completion", *(w for name in methods for w in ("--method", name))]
    words += [] if seeds == 5 else ["--seeds", str(seeds)]
    words += [] if seed == 42 else ["--seed", str(seed)]
    return shlex.join([*words, *([] if gradients else ["--no-gradients"])])
