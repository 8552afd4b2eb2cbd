"""``toreqprop sklearn``: the estimators next to scikit-learn's own networks."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from toreqprop.atomic import write_atomically

if TYPE_CHECKING:
    from toreqprop.bench import sklearn_table as bench


def sklearn(
    data: Annotated[
        list[str] | None, typer.Argument(help="Data sets; all of them by default.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds of folds and weights.")] = 3,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 42,
    output: Annotated[Path, typer.Option(help="Folder for sklearn.json.")] = Path("results"),
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
    from toreqprop.evidence import environment

    chosen = bench.select(data)
    used = tuple(range(seed, seed + seeds))
    found: list[bench.Comparison] = []
    console = Console(stderr=True, highlight=False)
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("cross-validating", total=bench.fits(chosen, used))
        for row in bench.compare(chosen, used, on_fit=lambda: progress.advance(bar)):
            found.append(row)
            console.print(f"{row.data}, {row.features}: {row.score} gap {row.gap:+.4f}")
    passed = all(row.passed for row in found)
    plain: dict[str, Any] = {
        "command": describe_command(data or [], seeds, seed),
        "protocol": f"{bench.FOLDS}-fold cross-validation, shuffled by each of the seeds; the same "
        "folds, random_state and float32 features for both models; nothing but defaults",
        "seeds": used,
        "environment": environment(),
        "passed": passed,
        "comparisons": [row.as_dict() for row in found],
    }
    path = output / "sklearn.json"
    write_atomically(path, json.dumps(plain, indent=2, ensure_ascii=False) + "\n")
    if as_json:
        typer.echo(json.dumps(plain, indent=2, ensure_ascii=False))
    else:
        console = Console()
        console.print(_table(found))
        console.print(f"wrote {path}", highlight=False)
    raise typer.Exit(0 if passed else 1)


def describe_command(data: list[str], seeds: int, seed: int) -> str:
    """The command that gives these results."""
    first = [] if seed == 42 else ["--seed", str(seed)]
    return shlex.join(["toreqprop", "sklearn", *data, "--seeds", str(seeds), *first])


def _table(found: list[bench.Comparison]) -> Table:
    from toreqprop.bench import sklearn_table as bench

    shown = Table(
        "data", "features", "EqProp", "MLP", "gap", "bound", "",
        title="mean accuracy in % or R² over folds and seeds, both at defaults",
    )  # fmt: skip
    for row in found:
        percent = row.score == "accuracy"
        ours, theirs, gap, bound = (
            f"{100 * v:{sign}.2f}" if percent else f"{v:{sign}.3f}"
            for v, sign in (
                (row.our_mean, ""),
                (row.their_mean, ""),
                (row.gap, "+"),
                (-bench.BOUNDS[row.score], "+"),
            )
        )
        shown.add_row(
            row.data,
            row.features,
            ours,
            theirs,
            gap,
            bound,
            "[green]PASS[/]" if row.passed else "[bold red]FAIL[/]",
        )
    return shown
