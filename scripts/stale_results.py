"""Say which reports under results/ are of other code, settings or versions than what is here."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from toreqprop.bench.hardware.budget_grid import DEVICES, GridPoint
from toreqprop.bench.hardware.faults import FAULTS, MAP, Fault
from toreqprop.bench.hardware.methods import METHODS, RECIPES, Method
from toreqprop.bench.hardware.plan import Plan, choose
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


def sweep_staleness(report: dict[str, Any], faults: tuple[Fault, ...] = FAULTS) -> list[str]:
    """The faults of a sweep of chips whose cells would have to be measured again, or are missing;
    "search" where that is of the trials."""
    methods: tuple[Method, ...] = METHODS[:1] if faults == MAP else METHODS
    plan = Plan(RECIPES[report["task"]], faults, methods)
    trials, keys = plan.trials(), report["keys"]
    if any(keys.get(cell.label) != cell.key for cell in trials):
        return ["search"]  # and with it everything
    scores = {
        (t["fault"], t["method"], t["learning_rate"], t["epochs"]): sum(t["held_out"])
        for t in report["search"]
    }
    records = {
        c: {"accuracy": scores[c.fault.name, c.method, c.recipe.learning_rate, c.recipe.epochs]}
        for c in trials
    }
    cells = plan.cells(choose(records))
    stale = [cell.fault.name for cell in cells if keys.get(cell.label) != cell.key]
    return list(dict.fromkeys(stale))


def grid_staleness(report: dict[str, Any]) -> list[str]:
    """The devices of the budget's grid that would have to be measured again."""
    points = [GridPoint(name) for name in DEVICES]
    return [p.device for p in points if report["keys"].get(p.label) != p.key]


def main() -> int:
    for path in sorted(RESULTS.glob("benchmark/*/benchmark.json")):
        say(path, benchmark_staleness(json.loads(path.read_text())))
    for path in sorted(RESULTS.glob("verification/*/verification.json")):
        say(path, verification_staleness(json.loads(path.read_text())))
    for name, faults in (("digits", FAULTS), ("mnist", FAULTS), ("digits-map", MAP)):
        path = RESULTS / "hardware" / f"{name}.json"
        if path.exists():
            say(path, sweep_staleness(json.loads(path.read_text()), faults), path.stem)
    path = RESULTS / "hardware" / "budget.json"
    say(path, grid_staleness(json.loads(path.read_text())), path.stem)
    for path in sorted(RESULTS.glob("*.json")):
        print(f"{path.relative_to(RESULTS)}: has no key, cannot tell")
    return 0


def say(path: Path, stale: list[str], stem: str = "") -> None:
    """One line for a report."""
    name = path.relative_to(RESULTS).parent / stem
    print(f"{name}: stale: {', '.join(stale)}" if stale else f"{name}: up to date")


if __name__ == "__main__":
    sys.exit(main())
