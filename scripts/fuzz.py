"""Damage files at random and see that each is refused in a sentence or means what it meant.

The tests of `tests/fuzz` do the same with 200 cases; this command, for every night, with 2,000 or
more and other ones each time. Run it from the top of the repository:

    python scripts/fuzz.py --cases 2000
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
VARIABLE = "TOREQPROP_FUZZ_CASES"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=2000, help="how many files to damage")
    parser.add_argument("--seed", type=int, help="repeat the cases of an earlier run")
    options = parser.parse_args()
    if options.cases < 1:
        parser.error("--cases must be >= 1")
    command = [sys.executable, "-m", "pytest", "tests/fuzz", "-p", "no:xdist", "-v"]
    if options.seed is not None:
        command.append(f"--hypothesis-seed={options.seed}")
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, VARIABLE: str(options.cases)}
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
