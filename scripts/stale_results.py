"""Say which reports under results/ are of other code, settings or versions than what is here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from toreqprop.bench.plan import make_plan
from toreqprop.verify.levels import LEVELS
from toreqprop.verify.records import Job
from toreqprop.verify.registry import all_tracks

RESULTS = Path(__file__).parents[1] / "results"


def benchmark_staleness(report: dict[str, Any]) -> list[str]:
    """The rows of a whole benchmark whose runs would have to be made again."""
    current = {run.label: run.key for run in make_plan(full=report["level"] == "full").runs()}
    stale = [
        row["title"]
        for row in report["rows"]
        if any(current.get(label) != key for label, key in row["keys"].items())
    ]
    untried = {run.task for run in make_plan(full=report["level"] == "full").runs()}
    known = {row["name"] for row in report["rows"]}
    return stale + [f"{name} (not in it)" for name in sorted(untried - known)]


def verification_staleness(report: dict[str, Any]) -> list[str]:
    """The tracks of a verification that would have to be run again."""
    level = next(level for level in LEVELS.values() if level.title == report["level"])
    stale = []
    for track in report["tracks"]:
        known = all_tracks().get(track["number"])
        seeds = tuple(track["seeds"])
        if known is None or Job(known, level, seeds).key != track.get("key"):
            stale.append(f"track {track['number']}")
    return stale


def main() -> int:
    for path in sorted(RESULTS.glob("benchmark/*/benchmark.json")):
        say(path, benchmark_staleness(json.loads(path.read_text())))
    for path in sorted(RESULTS.glob("verification/*/verification.json")):
        say(path, verification_staleness(json.loads(path.read_text())))
    for path in sorted(RESULTS.glob("*.json")):
        print(f"{path.relative_to(RESULTS)}: has no key, cannot tell")
    return 0


def say(path: Path, stale: list[str]) -> None:
    """One line for a report."""
    name = path.relative_to(RESULTS).parent
    print(f"{name}: stale: {', '.join(stale)}" if stale else f"{name}: up to date")


if __name__ == "__main__":
    sys.exit(main())
