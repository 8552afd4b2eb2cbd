"""``toreqprop verify``: numbered scientific checks, and a report of what they found."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from toreqprop.cli.elsewhere import Scheduler
from toreqprop.errors import InvalidInputError

if TYPE_CHECKING:
    from toreqprop.verify.report import Report

_NEEDED = ("scipy", "statsmodels", "matplotlib", "jinja2")


def verify(
    more: Annotated[list[str] | None, typer.Argument(help="Further numbers of --track.")] = None,
    track: Annotated[
        list[str] | None, typer.Option("--track", help="Numbers of tracks: --track 1 2 22.")
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option(help="Tracks whose title holds NAME; they must run and pass.", metavar="NAME"),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Smoke Test (the default).")] = False,
    intermediate: Annotated[bool, typer.Option("--intermediate", help="At least 3 seeds.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="At least 5 seeds, significance required.")
    ] = False,
    listing: Annotated[bool, typer.Option("--list", help="List the tracks and stop.")] = False,
    self_test: Annotated[
        bool,
        typer.Option("--self-test", help="Apply every sabotage; each must make its track FAIL."),
    ] = False,
    mutations: Annotated[
        bool,
        typer.Option(
            "--mutations", help="Plant faults in the library; each must be seen by its track."
        ),
    ] = False,
    fault: Annotated[
        list[str] | None,
        typer.Option(help="With --mutations, this fault alone; may be repeated.", metavar="NAME"),
    ] = None,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 42,
    seeds: Annotated[int | None, typer.Option(help="How many seeds; else the level's.")] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Parallel processes; by default one per core, at most 4.")
    ] = None,
    scheduler: Scheduler = None,
    output: Annotated[
        Path, typer.Option(help="Folder of the reports; each level has its own.")
    ] = Path("results"),
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh", help="Run again what is on disk, and say whether it came out alike."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Run numbered scientific checks and write the verification report.

    Stop it at any time and run it again: finished tracks are kept. Exit code 0 only if every
    track that ran passed.

    \b
    Examples:
      toreqprop verify --quick
      toreqprop verify --track 1 2 22 --intermediate
      toreqprop verify --mutations
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise InvalidInputError(
            f'Verification needs {", ".join(missing)}: run `pip install "toreqprop[bench]"`.'
        )
    from toreqprop.evidence import Store
    from toreqprop.verify.display import Display
    from toreqprop.verify.registry import select
    from toreqprop.verify.runner import KEPT, plan, run_verification

    numbers = _numbers(track, more)
    select(numbers, require or [])
    console = Console(soft_wrap=True, stderr=as_json)
    if listing:
        _list(console)
        return
    flags = {"quick": quick, "intermediate": intermediate, "full": full}
    asked = [name for name, flag in flags.items() if flag]
    if len(asked) > 1:
        raise InvalidInputError(f"--{asked[0]} and --{asked[1]} cannot be used together.")
    level = asked[0] if asked else "quick"
    processes = min(4, os.cpu_count() or 1) if jobs is None else jobs
    if mutations:
        from toreqprop.cli.mutations import show_mutations

        show_mutations(
            numbers, fault or [], level, seed, seeds, processes, output, scheduler, fresh=fresh,
            as_json=as_json,
        )  # fmt: skip
    if fault:
        raise InvalidInputError("--fault goes with --mutations.")
    todo, _ = plan(numbers, require or [], level, seed, seeds, self_test)
    display = Display(console)
    try:
        with display:
            found = run_verification(
                numbers,
                names=require or [],
                level=level,
                seed=seed,
                seeds=seeds,
                self_test=self_test,
                processes=processes,
                output=output,
                fresh=fresh,
                listener=display,
                executor=scheduler,
            )
    except KeyboardInterrupt:
        kept = Store(output / KEPT)
        count = sum(kept.load(job) is not None for job in todo)
        console.print(
            f"{count} of {len(todo)} experiments are finished and kept in {kept.folder}; the "
            "same command does the rest.",
            highlight=False,
        )
        raise
    if as_json:
        typer.echo(json.dumps(found.report, indent=2))
    _show(console, found.report)
    console.print("Written: " + ", ".join(map(str, found.written)), highlight=False)
    raise typer.Exit(int(not found.passed or (bool(require) and not found.complete)))


def _numbers(track: list[str] | None, more: list[str] | None) -> list[int]:
    if more and not track:
        raise InvalidInputError(f"Unexpected {more[0]!r}: numbers of tracks follow --track.")
    words = [w for item in [*(track or []), *(more or [])] for w in item.replace(",", " ").split()]
    try:
        return sorted({int(word) for word in words})
    except ValueError:
        raise InvalidInputError(
            f"--track takes numbers, got {' '.join(words)!r}; names go with --require."
        ) from None


def _list(console: Console) -> None:
    from toreqprop.verify.registry import all_tracks

    table = Table("#", "track", "claim", "sabotages")
    for number, track in all_tracks().items():
        faults = ", ".join(s.name for s in track.sabotages) or "stub"
        table.add_row(str(number), track.title, track.claim, faults)
    console.print(table)


def _show(console: Console, report: Report) -> None:
    from toreqprop.verify.display import STYLES

    table = Table("#", "track", "status", "score", "time")
    for t in report["tracks"]:
        style = STYLES.get(t["status"], "yellow")
        table.add_row(
            str(t["number"]),
            t["title"],
            f"[{style}]{t['status']}[/]",
            f"{t['score']:.0f}",
            f"{t['seconds']:.1f} s",
        )
    console.print(table)
    for t in report["tracks"]:
        for line in t["improvements"]:
            console.print(f"Track {t['number']}: {line}", markup=False, highlight=False)
        if t["status"] == "NOT RUN":
            console.print(f"Track {t['number']} not run: {t['reason']}", markup=False)
    for d in report["self_test"] or []:
        if d["available"]:
            text = "seen" if d["seen"] else f"NOT SEEN (the track's status is {d['status']})"
            console.print(
                f"Sabotage of track {d['track']}, {d['sabotage']}: {text}",
                style="green" if d["seen"] else "bold red",
                markup=False,
                highlight=False,
            )
    again = report["reproducibility"]
    for number in again["differing"]:
        console.print(f"Track {number}: a second run differed.", style="bold red")
    if again["confirmed"]:
        console.print(f"{again['confirmed']} tracks confirmed by a second run.", highlight=False)
