"""Measure what docs/devices.md says of the budget: predicted against measured errors.

python benchmarks/devices.py
"""

from __future__ import annotations

from pathlib import Path

import torch

from toreqprop.bench.circuits import report
from toreqprop.bench.hardware.budget_grid import DEVICES, measure

OUTPUT = Path(__file__).parents[1] / "results" / "hardware" / "budget.json"


def main() -> None:
    torch.set_num_threads(1)
    begun = report.begin()
    rows = []
    for name in DEVICES:
        rows.append(measure(name))
        print(name, rows[-1]["points"], flush=True)
    ratios = [p["measured"] / p["predicted"] for row in rows for p in row["points"]]
    worst = max(max(r, 1 / r) for r in ratios)
    report.write(OUTPUT, {"rows": rows, "worst_factor": worst}, begun)


if __name__ == "__main__":
    main()
