"""How the loops are compiled: strictly as written, and kept where that is possible."""

from __future__ import annotations

import logging
import multiprocessing
from typing import Any

import numba


def _probe() -> None:
    """Compiled nowhere; only asks where it would be kept."""


def _can_cache() -> bool:
    """Whether compiled code can be kept; not where home and package are both read-only."""
    try:
        numba.njit(cache=True)(_probe)
    except RuntimeError:
        if multiprocessing.parent_process() is None:  # said once, not by every worker
            logging.getLogger("toreqprop").warning(
                "Compiled code cannot be kept, as neither the package nor the home folder can be "
                "written: it is compiled anew in every process. To change that, set "
                "NUMBA_CACHE_DIR."
            )
        return False
    return True


OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "cache": _can_cache()}
