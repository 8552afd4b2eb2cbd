"""``toreqprop sklearn``: the estimators next to scikit-learn's own networks."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table


def sklearn(
    data: Annotated[
        list[str] | None, typer.Argument(help="Data sets; all of them by default.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds of folds and weights.")] = 3,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 42,
    output: Annotated[Path, typer.Option(help="Folder for sklearn.json.")] = Path("results"),
    jobs: Annotated[int, typer.Option(help="Parallel processes.", min=1)] = 1,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure again what an earlier command finished.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurements.")] = False,
) -> None:
    """Cross-validate the estimators against MLPClassifier and MLPRegressor, all at defaults.

    Writes sklearn.json. Exit code 1 if one falls short by more than a point of accuracy or 0.03
    of R².

    \b
    Examples:
      toreqprop sklearn
      toreqprop sklearn iris diabetes --seeds 5
    """
    from toreqprop.bench import sklearn_table as bench
    from toreqprop.cli.studies import StudyDisplay
    from toreqprop.evidence import run_study

    chosen = bench.select(data)
    used = tuple(range(seed, seed + seeds))
    path = output / "sklearn.json"
    with StudyDisplay(Console(stderr=True, highlight=False)) as display:
        plain = run_study(
            bench.measurements(chosen, used),
            lambda found: {
                "protocol": f"{bench.FOLDS}-fold cross-validation, shuffled by each of the seeds; "
                "the same folds, random_state and float32 features for both models; nothing but "
                "defaults",
                "seeds": list(used),
                "passed": all(row["passed"] for row in found),
                "comparisons": found,
            },
            command=describe_command(data or [], seeds, seed),
            path=path,
            processes=jobs,
            fresh=fresh,
            listener=display,
        )
    if as_json:
        typer.echo(json.dumps(plain, indent=2, ensure_ascii=False))
    else:
        console = Console()
        console.print(_table(plain["comparisons"]))
        console.print(f"wrote {path}", highlight=False)
    raise typer.Exit(0 if plain["passed"] else 1)


def describe_command(data: list[str], seeds: int, seed: int) -> str:
    """The command that gives these results."""
    first = [] if seed == 42 else ["--seed", str(seed)]
    return shlex.join(["toreqprop", "sklearn", *data, "--seeds", str(seeds), *first])


def _table(found: list[dict[str, Any]]) -> Table:
    shown = Table(
        "data", "features", "EqProp", "MLP", "gap", "bound", "",
        title="mean accuracy in % or R² over folds and seeds, both at defaults",
    )  # fmt: skip
    for row in found:
        percent = row["score"] == "accuracy"
        figures = (
            f"{100 * row[key]:{sign}.2f}" if percent else f"{row[key]:{sign}.3f}"
            for key, sign in (("our_mean", ""), ("their_mean", ""), ("gap", "+"), ("bound", "+"))
        )
        verdict = "[green]PASS[/]" if row["passed"] else "[bold red]FAIL[/]"
        shown.add_row(row["data"], row["features"], *figures, verdict)
    return shown
