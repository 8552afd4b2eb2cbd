"""Write the README's results table from results/*.json; with --check, only say if it is stale."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from result_tables.benchmark import percent, verdict
from result_tables.sources import BENCHMARK, load

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- benchmark: begin -->", "<!-- benchmark: end -->"


def benchmark_table(report: dict[str, Any]) -> list[str]:
    lines = [
        "| Task | Seeds | Backprop, same parameters | Backprop, same depth | EP "
        "| Gap to the stronger (95 %) | Verdict | Norm | Recurrence cut |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in report["rows"]:
        arms, gap = row["arms"], row["comparison"]["gap"]
        shallow = percent(arms["shallow"]["accuracy"]) if "shallow" in arms else "the same"
        interval = "" if gap["low"] is None else f" [{gap['low']:+.2f}, {gap['high']:+.2f}]"
        lines.append(
            f"| {row['title']} | {len(row['seeds'])} | {percent(arms['backprop']['accuracy'])} "
            f"| {shallow} | {percent(arms['ep']['accuracy'])} | {gap['mean']:+.2f}{interval} "
            f"| {verdict(row)} | {row['recurrence']['norm']:.2f} "
            f"| {row['recurrence']['cut']['mean']:+.2f} |"
        )
    lines += [f"| {row['title']} | | not run | | | | | | |" for row in report["not_run"]]
    return [
        *lines,
        "",
        f"{report['conclusion']} Test accuracy on sets that no seed trains on; *norm* of the "
        "recurrence after training; *recurrence cut*: what the accuracy changes by without it. "
        f"[Report](results/{BENCHMARK.replace('.json', '.md')}), "
        f"[every figure](results/{BENCHMARK}), by `{report['command']}`.",
    ]


def render() -> str:
    """The README with its table up to date."""
    page = (ROOT / "README.md").read_text()
    report = load(BENCHMARK)
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
