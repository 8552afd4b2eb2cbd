"""What the measurements were made with: versions and hardware, nothing that names a machine."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from toreqprop.kernels import compiled_available

PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "gymnasium", "numba", "matplotlib")


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


def metadata_version(package: str) -> str | None:
    """The installed version, or None."""
    if package == "toreqprop":
        import toreqprop

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
