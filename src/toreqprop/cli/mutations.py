"""`toreqprop verify --mutations`: the faults planted in the library, and which were seen."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from toreqprop.atomic import write_atomically
from toreqprop.evidence import Listener, Record
from toreqprop.progress_bars import ProgressBars
from toreqprop.verify.mutations.score import MutationReport, Planted, run_mutations

FILE = "verification/mutations.json"


class Display(ProgressBars, Listener[Planted]):
    """What each running track is at, and every outcome as it comes."""

    _titles: dict[str, str]

    def planned(self, pending: Sequence[Planted], reused: int) -> None:
        self._titles = {job.label: job.title for job in pending}
        self.begin(len(pending), reused, "runs of tracks")

    def progress(self, label: str, news: str) -> None:
        self.piece(label, self._titles[label], None, note=news)

    def repeated(self, jobs: Sequence[Planted]) -> None:
        self.say_repeated([job.title for job in jobs])

    def finished(self, job: Planted, record: Record) -> None:
        self.end_piece(job.label)
        honest = record["status"] in ("PASS", "PARTIAL")
        wanted = honest if job.fault is None else bool(record["broken"])
        reason = record["reason"] or "; ".join(record["broken"])
        self.console.print(
            f"[{self.done}/{self.total}] {job.title}: {record['status']}, "
            f"{record['timing']['seconds']:.1f} s" + (f": {reason}" if reason else ""),
            style="green" if wanted else "bold red",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def show_mutations(
    tracks: list[int],
    faults: list[str],
    level: str,
    seed: int,
    seeds: int | None,
    processes: int,
    output: Path,
    scheduler: str | None,
    *,
    fresh: bool,
    as_json: bool,
) -> None:
    """Run, print, write ``mutations.json`` where all mutations ran; exit code 0 at a full score."""
    console = Console(soft_wrap=True, stderr=as_json)
    with Display(console, transient=True) as display:
        report = run_mutations(
            tracks,
            faults=faults,
            level=level,
            seed=seed,
            seeds=seeds,
            processes=processes,
            output=output,
            fresh=fresh,
            listener=display,
            executor=scheduler,
        )
    plain = report.as_dict()
    if as_json:
        typer.echo(json.dumps(plain, indent=2))
    _show(console, report)
    if not tracks and not faults:
        path = output / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(plain, indent=1, ensure_ascii=False) + "\n")
        console.print(f"Written: {path}", highlight=False)
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
