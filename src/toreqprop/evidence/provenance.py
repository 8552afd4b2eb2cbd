"""What a measurement was made with: versions, processor, commit, time; no machine's name."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import toreqprop
from toreqprop.kernels import compiled_available

PACKAGES = (
    "torch", "numpy", "scipy", "statsmodels", "scikit-learn", "gymnasium", "numba", "matplotlib",
)  # fmt: skip

DECIDING = ("torch", "numpy", "scipy", "scikit-learn", "gymnasium", "numba")
"""Packages whose version may change a measurement."""


def environment() -> dict[str, Any]:
    """Versions of what computes, and the processor that did."""
    return {
        "toreqprop": metadata_version("toreqprop"),
        "python": platform.python_version(),
        "packages": {name: metadata_version(name) for name in PACKAGES},
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "threads_per_run": 1,
        "compiled_kernels": compiled_available(),
    }


def provenance(command: str, started: float) -> dict[str, Any]:
    """Commit, command, environment and times: what every file of results holds.

    ``started`` is a time of `time.time`.
    """
    return {
        "commit": commit(),
        "command": command,
        "environment": environment(),
        "timing": {
            "started": moment(started),
            "generated": moment(time.time()),
            "command_seconds": time.time() - started,
        },
    }


def moment(when: float) -> str:
    """A time in UTC, as ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))


@cache
def commit() -> str | None:
    """The commit of the source that runs, marked where files of it were changed since; None
    outside a repository."""
    folder = Path(toreqprop.__file__).parent
    number = _git(folder, "rev-parse", "--short=12", "HEAD")
    if number is None:
        return None
    changed = _git(folder, "status", "--porcelain", "--", str(folder))
    return f"{number}, changed since" if changed else number


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def deciding_versions() -> dict[str, Any]:
    """The versions that are part of a record's key, and whether kernels are compiled."""
    found: dict[str, Any] = {name: metadata_version(name) for name in DECIDING}
    return found | {"compiled": compiled_available()}


@cache
def metadata_version(package: str) -> str | None:
    """The installed version, or None."""
    if package == "toreqprop":
        return toreqprop.__version__
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def cpu_model() -> str:
    """The processor's name, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
