"""Trials and cells of a report that is kept, to be joined by those it lacks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toreqprop.bench.hardware.cell import Cell
from toreqprop.bench.hardware.methods import Recipe
from toreqprop.bench.hardware.plan import SEARCH_SEEDS, Plan
from toreqprop.errors import InvalidInputError
from toreqprop.evidence.job import Record

Report = dict[str, Any]


def kept_records(found: Report, plan: Plan, cells: Iterable[Cell]) -> dict[Cell, Record]:
    """What a report says of these trials and cells, each with its key and the commit it is of.

    A cell counts where device, method, seed and settings are the same, whatever code measured it.

    Raises:
        InvalidInputError: the report is of another recipe.
    """
    if Recipe(**found["recipe"]) != plan.base:
        raise InvalidInputError("The kept report is of another recipe: leave out --add.")
    usual, seeds = plan.base.feedback, SEARCH_SEEDS[plan.base.task]
    trials = {
        (
            t["fault"],
            t["method"],
            t["learning_rate"],
            t["epochs"],
            t.get("feedback", usual),
            t.get("wide", False),
            seed,
        ): a
        for t in found["search"]
        for seed, a in zip(t.get("seeds", seeds), t["held_out"], strict=False)
    }
    rows = {row["fault"]: row for row in found["rows"]}
    known: dict[Cell, Record] = {}
    for cell in cells:
        tuned, method = cell.recipe.tuned, cell.method
        row = rows.get(cell.fault.name)
        if row is None or row["device"] != str(cell.fault.device):
            continue
        if cell.held_out:
            accuracy = trials.get((cell.fault.name, method, *tuned, cell.wide, cell.seed))
        else:
            same = (*row["settings"].get(method, ()), usual)[:3] == tuned
            accuracy = row["accuracies"].get(method, {}).get(str(cell.seed)) if same else None
        if accuracy is not None:
            known[cell] = {
                "accuracy": accuracy,
                # Means over the row's chips stand for each of them: the mean stays what it was.
                **{name: row.get(name) for name in ("norm", "beta", "cosine")},
                "key": found["keys"].get(cell.label),
                "commit": found.get("commits", {}).get(cell.label, found["commit"]),
            }
    return known
