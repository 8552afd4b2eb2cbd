"""What every measurement of circuits writes: figures with the commit, command and machine."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toreqprop.atomic import write_atomically
from toreqprop.errors import TorEqPropError
from toreqprop.evidence import environment
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


@dataclass(frozen=True)
class Begun:
    """When a measurement began, and with which code: files may change while it runs."""

    time: float
    commit: str


def begin() -> Begun:
    return Begun(time.time(), commit())


def write(path: Path, figures: dict[str, Any], begun: Begun) -> None:
    """Write the figures of a measurement."""
    about = {
        "command": " ".join(["python", *sys.argv]),
        "commit": begun.commit,
        "date": time.strftime("%Y-%m-%d", time.gmtime(begun.time)),
        "seconds": round(time.time() - begun.time, 1),
        "environment": {**environment(), "ngspice": simulator()},
    }
    write_atomically(path, json.dumps({**about, **figures}, indent=2) + "\n")
