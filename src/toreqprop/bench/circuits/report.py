"""What every measurement of circuits writes: figures with the commit, command and machine."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from toreqprop.atomic import write_atomically
from toreqprop.bench.environment import environment
from toreqprop.errors import TorEqPropError
from toreqprop.hardware import Ngspice


def commit() -> str:
    """The commit of the code that ran, with a mark where files differ from it."""
    here = Path(__file__).parent
    words = ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.strip()


def simulator() -> str | None:
    """The version of ngspice, None where there is none."""
    try:
        return Ngspice().version()
    except TorEqPropError:
        return None


def write(path: Path, figures: dict[str, Any], started: float) -> None:
    """Write the figures; ``started`` is `time.time` at the beginning."""
    about = {
        "command": " ".join(["python", *sys.argv]),
        "commit": commit(),
        "date": time.strftime("%Y-%m-%d", time.gmtime(started)),
        "seconds": round(time.time() - started, 1),
        "environment": {**environment(), "ngspice": simulator()},
    }
    write_atomically(path, json.dumps({**about, **figures}, indent=2) + "\n")
