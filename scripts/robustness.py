"""Where the scripts that damage, kill and wear out leave what they found: results/robustness/."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from toreqprop.evidence import environment

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "results" / "robustness"


def record(name: str, content: dict[str, Any]) -> Path:
    """Write ``content`` with the command, the commit and the environment it was found with."""
    path = FOLDER / f"{name}.json"
    about = {
        "command": " ".join(["python", f"scripts/{Path(sys.argv[0]).name}", *sys.argv[1:]]),
        "commit": _git("rev-parse", "HEAD"),
        "altered": bool(_git("status", "--porcelain", "--", "src", "scripts", "tests")),
        "environment": environment(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**about, **content}, indent=1, allow_nan=False) + "\n")
    return path


def _git(*words: str) -> str | None:
    """What git says; None where there is none, or no repository."""
    try:
        found = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return None
    return found.stdout.strip() if found.returncode == 0 else None
