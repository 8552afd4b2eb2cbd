"""Damage files at random and see that each is refused in a sentence or means what it meant.

The tests of `tests/fuzz` do the same with 200 cases; this command, for every night, with 2,000 or
more and other ones each time. Run it from the top of the repository:

    python scripts/fuzz.py --cases 2000
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from random import SystemRandom

from robustness import ROOT, record

VARIABLE = "TOREQPROP_FUZZ_CASES"
TRIED = re.compile(
    r"^tests/fuzz/\w+\.py::(?P<test>\w+):\n(?:(?!^tests/).*\n)*?"
    r".*?(?P<passing>[\d,]+) passing(?: examples)?, (?P<failing>[\d,]+) failing",
    re.MULTILINE,
)
"""What hypothesis says of a test in its statistics."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=2000, help="how many files to damage")
    parser.add_argument("--seed", type=int, help="repeat the cases of an earlier run")
    parser.add_argument("--record", action="store_true", help="write results/robustness/fuzz.json")
    options = parser.parse_args()
    if options.cases < 1:
        parser.error("--cases must be >= 1")
    seed = SystemRandom().randrange(2**32) if options.seed is None else options.seed
    words = ["tests/fuzz", "-p", "no:xdist", "-v", "--color=no", "--hypothesis-show-statistics"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *words, f"--hypothesis-seed={seed}"],
        cwd=ROOT,
        env={**os.environ, VARIABLE: str(options.cases)},
        stdout=subprocess.PIPE,
        text=True,
    )
    print(ended.stdout)
    rows = [
        {"test": found["test"], **{k: _number(found[k]) for k in ("passing", "failing")}}
        for found in TRIED.finditer(ended.stdout)
    ]
    tried = sum(row["passing"] + row["failing"] for row in rows)
    wrong = ended.returncode != 0 or tried < options.cases or any(r["failing"] for r in rows)
    print(f"{tried:,} cases; the same again: --seed {seed}")
    if options.record:
        print(record("fuzz", {"seed": seed, "cases": tried, "passed": not wrong, "tests": rows}))
    return int(wrong)


def _number(text: str) -> int:
    return int(text.replace(",", ""))


if __name__ == "__main__":
    sys.exit(main())
