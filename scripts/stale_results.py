"""Say which reports under results/ are of other code, settings or versions than what is here."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toreqprop.bench.hardware.budget_grid import DEVICES, GridPoint
from toreqprop.bench.hardware.faults import FAULTS, MAP, Fault
from toreqprop.bench.hardware.methods import METHODS, RECIPES, Method
from toreqprop.bench.hardware.plan import Plan, choose
from toreqprop.bench.hardware.pulsed import trials
from toreqprop.bench.plan import make_plan
from toreqprop.evidence.study import stale as stale_measurements
from toreqprop.verify.levels import LEVELS
from toreqprop.verify.mutations.catalogue import mutations
from toreqprop.verify.mutations.score import Planted
from toreqprop.verify.records import Job
from toreqprop.verify.registry import all_tracks

RESULTS = Path(__file__).parents[1] / "results"
SHOWN = 12
"""How many names a line lists."""


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


def verification_staleness(report: dict[str, Any], whole: bool = True) -> list[str]:
    """The tracks of a verification that would have to be run again, and of a whole one those that
    are missing."""
    level = next(level for level in LEVELS.values() if level.title == report["level"])
    stale = []
    for track in report["tracks"]:
        known = all_tracks().get(track["number"])
        seeds = tuple(track["seeds"])
        if known is None or Job(known, level, seeds).key != track.get("key"):
            stale.append(f"track {track['number']}")
    there = {track["number"] for track in report["tracks"]} if whole else set(all_tracks())
    return stale + [f"track {n} (not in it)" for n in all_tracks() if n not in there]


def mutation_staleness(report: dict[str, Any]) -> list[str]:
    """The planted faults whose tracks would have to be run again, and those not in the report."""
    stale = []
    known = {row["name"]: row["key"] for row in report["mutations"]}
    for name, mutation in mutations().items():
        job = Planted(mutation.track, name, report["level"], tuple(report["seeds"]))
        if known.get(name) != job.key:
            stale.append(name if name in known else f"{name} (not in it)")
    return stale


def sweep_staleness(report: dict[str, Any], faults: tuple[Fault, ...] = FAULTS) -> list[str]:
    """The faults of a sweep of chips whose cells would have to be measured again, or are missing;
    "search" where that is of the trials."""
    methods: tuple[Method, ...] = METHODS[:1] if faults == MAP else METHODS
    plan = Plan(RECIPES[report["task"]], faults, methods)
    tried, keys = plan.trials(), report["keys"]
    if any(keys.get(cell.label) != cell.key for cell in tried):
        return ["search"]  # and with it everything
    scores = {
        (t["fault"], t["method"], t["learning_rate"], t["epochs"]): sum(t["held_out"])
        for t in report["search"]
    }
    records = {
        c: {"accuracy": scores[c.fault.name, c.method, c.recipe.learning_rate, c.recipe.epochs]}
        for c in tried
    }
    cells = plan.cells(choose(records))
    stale = [cell.fault.name for cell in cells if keys.get(cell.label) != cell.key]
    return list(dict.fromkeys(stale))


def pulsed_staleness(report: dict[str, Any]) -> list[str]:
    """The runs of pulsed devices, of those that are in the report, of other code."""
    first = trials("exact", False, report["epochs"])
    return [run.label for run in first if report["keys"].get(run.label) != run.key]


def grid_staleness(report: dict[str, Any]) -> list[str]:
    """The devices of the budget's grid that would have to be measured again."""
    points = [GridPoint(name) for name in DEVICES]
    return [p.device for p in points if report["keys"].get(p.label) != p.key]


OF_CHIPS: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "digits": sweep_staleness,
    "mnist": sweep_staleness,
    "digits-map": lambda report: sweep_staleness(report, MAP),
    "budget": grid_staleness,
    "pulsed": pulsed_staleness,
}
"""By the name of a report on chips."""


def staleness(path: Path, report: Any) -> list[str] | None:
    """What of a file of results is stale; None where it does not say what it was made from."""
    if path.name == "benchmark.json":
        return benchmark_staleness(report)
    if path.name == "verification.json":
        return verification_staleness(report, path.parent.name in LEVELS)
    if path.name == "mutations.json":
        return mutation_staleness(report)
    if path.parent.name == "hardware" and path.stem in OF_CHIPS:
        return OF_CHIPS[path.stem](report)
    if isinstance(report, dict) and "measurements" in report:
        return stale_measurements(report)
    return None


def main() -> int:
    unknown = []
    for path in sorted(RESULTS.rglob("*.json")):
        name = path.relative_to(RESULTS)
        if any(part.startswith(".") for part in name.parts):
            continue
        stale = staleness(path, json.loads(path.read_text()))
        if stale is None:
            unknown.append(str(name))
        else:
            print(f"{name}: {summary(stale)}")
    print(f"No key, made by {len(unknown)} commands outside the harness: {', '.join(unknown)}")
    return 0


def summary(stale: list[str]) -> str:
    """Up to date, or what is not."""
    if not stale:
        return "up to date"
    more = f" and {len(stale) - SHOWN} more" if len(stale) > SHOWN else ""
    return f"stale: {', '.join(stale[:SHOWN])}{more}"


if __name__ == "__main__":
    sys.exit(main())
