"""Where figures of the documents come from: results/*.json, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"

Report = dict[str, Any]
Lines = list[str]


def load(name: str) -> Report:
    """One file of results."""
    return json.loads((RESULTS / name).read_text())


def load_lines(name: str) -> list[Report]:
    """A file of results with one on each line."""
    return [json.loads(line) for line in (RESULTS / name).read_text().splitlines()]


def measured(
    name: str, command: str, lines: Callable[[Any], Lines], picture: str | None = None
) -> Callable[[], Lines]:
    """A block of lines from one file of results, which says how to measure where there is none.

    ``picture`` is Markdown that goes below the lines.
    """

    def block() -> Lines:
        if not (RESULTS / name).exists():
            return [f"Not measured yet: `toreqprop {command}`."]
        found = lines(load_lines(name) if name.endswith(".jsonl") else load(name))
        return [*found, "", picture] if picture else found

    return block


BENCHMARK = next(
    name
    for level in ("full", "quick")
    if (RESULTS / (name := f"benchmark/{level}/benchmark.json")).exists()
)
"""The report that pages are written from: the full one, or the quick one until there is one."""
