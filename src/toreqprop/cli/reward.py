"""``toreqprop reward``: policies learnt from reward by EP and by backprop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from toreqprop import checks
from toreqprop.cli.names import REWARD_METHODS, REWARD_TASKS


def reward(
    task: Annotated[
        list[str] | None, typer.Option(help=f"One of {', '.join(REWARD_TASKS)}; by default both.")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(REWARD_METHODS)}; by default all but implicit."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many, from --seed on.", min=1)] = 10,
    seed: Annotated[int, typer.Option(help="The first seed.", min=0)] = 0,
    updates: Annotated[
        int | None, typer.Option(help="Of a policy, instead of the study's own number.", min=2)
    ] = None,
    search: Annotated[
        bool, typer.Option("--search", help="Choose the rates anew, on seeds of their own.")
    ] = False,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Take up trainings of the file that is there, of any code."),
    ] = False,
    output: Annotated[Path, typer.Option(help="Folder for JSON and figure.")] = Path("results"),
    jobs: Annotated[int, typer.Option(help="Parallel processes.", min=1)] = 1,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again what an earlier command finished.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurements.")] = False,
) -> None:
    """Learn CartPole and Acrobot from reward: a looped network by EP, plain ones by backprop.

    Writes reward.json with learning curves, certificates and verdicts, reward.svg and reward.png;
    what leaves out a task or a method is called reward_partial. Stop it at any time and run it
    again: finished trainings are kept. Exit code 1 where a check fails.

    \b
    Examples:
      toreqprop reward
      toreqprop reward --task cartpole --seeds 2
      toreqprop reward --method ep --method implicit --seeds 1
      toreqprop reward --search
      toreqprop reward --search --task cartpole
    """
    from toreqprop.bench.reward import report, study
    from toreqprop.cli.studies import StudyDisplay
    from toreqprop.plots.style import need_matplotlib, save

    for name in task or ():
        checks.choice("task", name, REWARD_TASKS)
    for name in method or ():
        checks.choice("method", name, REWARD_METHODS)
    need_matplotlib()  # before anything is trained
    tasks = [t for t in study.TASKS if not task or t in task]
    with StudyDisplay(Console(stderr=True)) as display:
        if search:
            found = study.run_search(
                output,
                tasks=tasks,
                updates=updates,
                processes=jobs,
                fresh=fresh,
                listener=display,
            )
        else:
            found = study.run_reward(
                output,
                tasks=tasks,
                methods=[m for m in REWARD_METHODS if m in (method or study.STUDIED)],
                seeds=seeds,
                first_seed=seed,
                updates=updates,
                keep=keep,
                processes=jobs,
                fresh=fresh,
                listener=display,
            )
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    elif search:
        typer.echo("\n".join(report.search_lines(found)))
    else:
        parts = (report.table_lines, report.gap_lines, report.relaxation_lines, report.check_lines)
        typer.echo("\n\n".join("\n".join(lines(found)) for lines in parts))
    if search:
        return
    for kind in ("svg", "png"):
        save(report.curves_figure(found), output / f"{found['stem']}.{kind}")
    if found["verdict"] == "FAIL":
        raise typer.Exit(1)
