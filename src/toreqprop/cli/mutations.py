"""`toreqprop verify --mutations`: the faults planted in the library, and which were seen."""

from __future__ import annotations

import json
import time
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from toreqprop.atomic import write_atomically
from toreqprop.progress_bars import ProgressBars
from toreqprop.verify.mutations.score import (
    Key,
    Listener,
    MutationReport,
    Run,
    run_mutations,
)

FILE = "mutations.json"


class Display(ProgressBars, Listener):
    """What each running track is at, and every outcome as it comes."""

    def planned(self, count: int) -> None:
        self.begin(count, 0, "runs of tracks")

    def progress(self, key: Key, message: str) -> None:
        self.piece(str(key), _name(key), None, note=message)

    def finished(self, key: Key, run: Run) -> None:
        self.end_piece(str(key))
        wanted = run.status in ("PASS", "PARTIAL") if key[1] is None else bool(run.broken)
        reason = run.reason or "; ".join(run.broken)
        self.console.print(
            f"[{self.done}/{self.total}] {_name(key)}: {run.status}, {run.seconds:.1f} s"
            + (f": {reason}" if reason else ""),
            style="green" if wanted else "bold red",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def _name(key: Key) -> str:
    number, name = key
    return f"Track {number} without a fault" if name is None else f"Track {number} with: {name}"


def show_mutations(
    tracks: list[int],
    level: str,
    seed: int,
    seeds: int | None,
    processes: int,
    output: Path,
    scheduler: str | None,
    *,
    as_json: bool,
) -> None:
    """Run, print, write ``mutations.json`` where all mutations ran; exit code 0 at a full score."""
    console = Console(soft_wrap=True, stderr=as_json)
    with Display(console, transient=True) as display:
        report = run_mutations(
            tracks,
            level=level,
            seed=seed,
            seeds=seeds,
            processes=processes,
            listener=display,
            executor=scheduler,
        )
    plain = report.as_dict()
    plain["command"] = " ".join(
        [f"toreqprop verify --mutations --{level}"]
        + ([f"--track {' '.join(map(str, tracks))}"] if tracks else [])
        + ([f"--seed {seed}"] if seed != 42 else [])
        + ([f"--seeds {seeds}"] if seeds is not None else [])
    )
    plain["timing"]["generated"] = time.strftime("%Y-%m-%d %H:%M:%S")
    if as_json:
        typer.echo(json.dumps(plain, indent=2))
    _show(console, report)
    if not tracks:
        output.mkdir(parents=True, exist_ok=True)
        write_atomically(output / FILE, json.dumps(plain, indent=1, ensure_ascii=False) + "\n")
        console.print(f"Written: {output / FILE}", highlight=False)
    raise typer.Exit(int(report.planted == 0 or report.seen < report.planted))


def _show(console: Console, report: MutationReport) -> None:
    table = Table("area", "planted", "seen", "tracks")
    for area in dict.fromkeys(o.area for o in report.outcomes):
        mine = [o for o in report.outcomes if o.area == area]
        tracks = ", ".join(str(t) for t in sorted({o.track for o in mine}))
        seen = sum(o.seen for o in mine)
        table.add_row(area, str(len(mine)), str(seen), tracks)
    console.print(table)
    for o in report.outcomes:
        if not o.available:
            console.print(f"Not tried, track {o.track} cannot run here: {o.name}.", markup=False)
        elif not o.seen:
            console.print(
                f"NOT SEEN by track {o.track} ({o.status}; {o.honest} without it): {o.name}. "
                f"{o.reason}",
                style="bold red",
                markup=False,
                highlight=False,
            )
    console.print(
        f"Mutation score: {report.seen} of {report.planted} faults seen, {report.score:.1f} %.",
        highlight=False,
    )
