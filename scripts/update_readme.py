"""Write the README's results table from results/*.json; with --check, only say if it is stale."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- benchmark: begin -->", "<!-- benchmark: end -->"


def accuracy(summary: dict[str, Any]) -> str:
    return f"{summary['mean']:.2f} ± {summary['sd']:.2f} %"


def benchmark_table(report: dict[str, Any]) -> list[str]:
    lines = [
        "| Task | Backpropagation | Equilibrium propagation | Gap | Steps free / nudged |",
        "|---|---|---|---|---|",
    ]
    for task in report["tasks"]:
        if task["status"] == "NOT RUN":
            lines.append(f"| {task['title']} | not run | not run | | |")
            continue
        models, relaxation = task["models"], task["relaxation"]
        lines.append(
            f"| {task['title']} | {accuracy(models['backprop']['accuracy'])} "
            f"| {accuracy(models['ep']['accuracy'])} "
            f"| {task['comparison']['gap']['mean']:+.2f} "
            f"| {relaxation['free_steps']:.1f} / {relaxation['nudged_steps']:.1f} |"
        )
    seeds = ", ".join(str(s) for s in report["seeds"])
    lines += [
        "",
        f"Test accuracy over seeds {seeds}, from [results/benchmark.json](results/benchmark.json); "
        "the [full report](results/benchmark.md) has intervals, tests and negative controls.",
    ]
    return lines


def render() -> str:
    """The README with its table up to date."""
    page = (ROOT / "README.md").read_text()
    report = json.loads((ROOT / "results" / "benchmark.json").read_text())
    head, rest = page.split(BEGIN, 1)
    return "\n".join([head + BEGIN, *benchmark_table(report), END + rest.split(END, 1)[1]])


def main() -> int:
    fresh = render()
    readme = ROOT / "README.md"
    if "--check" in sys.argv:
        stale = readme.read_text() != fresh
        print("README.md is stale: run scripts/update_readme.py" if stale else "README.md is fresh")
        return int(stale)
    readme.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
