"""How the loops are compiled: strictly as written, kept where that is possible, and with a word."""

from __future__ import annotations

import hashlib
import logging
import multiprocessing
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import event
from numba.extending import register_jitable

_log = logging.getLogger("toreqprop")
_alone = multiprocessing.parent_process() is None
"""What every worker would repeat is said by the first process alone."""


def _probe() -> None:
    """Compiled nowhere; only asks where it would be kept."""


def _can_cache() -> bool:
    """Whether compiled code can be kept; not where home and package are both read-only."""
    try:
        numba.njit(cache=True)(_probe)
    except RuntimeError:
        if _alone:
            _log.warning(
                "Compiled code cannot be kept, as neither the package nor the home folder can be "
                "written: it is compiled again in every process. To change that, set "
                "NUMBA_CACHE_DIR."
            )
        return False
    return True


_KEPT = _can_cache()


@cache
def _sources() -> str:
    """The digest of every file of this package: any of them may be compiled into any other."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def compiled(function: Callable[..., Any]) -> Any:
    """The function, compiled when it is first called, or as it was kept.

    Numba keeps code by the date of the file it is in, and would go on with a function that another
    file has changed since: here it is kept by the text of all of them.
    """
    made = numba.njit(error_model="numpy", nogil=True, cache=_KEPT, no_cfunc_wrapper=True)(function)
    kept = getattr(getattr(made, "_cache", None), "_cache_file", None)
    if hasattr(kept, "_source_stamp"):
        kept._source_stamp = _sources()
    return made


def address_of(function: Any, arguments: tuple[Any, ...]) -> int:
    """Where a `compiled` function, which is to return nothing, can be called as one of C's."""
    function.targetoptions["no_cfunc_wrapper"] = False
    function.compile(arguments)
    made = function.overloads[arguments]
    return int(made.library.get_pointer_to_function(made.fndesc.llvm_cfunc_wrapper_name))


def helper(function: Callable[..., Any]) -> Any:
    """A function for compiled ones to call: compiled into them, and not kept by itself.

    A file and a way in from Python for each of these took a fifth of the compilation. Called from
    Python, it is the function as written.
    """
    return register_jitable(error_model="numpy", no_cfunc_wrapper=True)(function)


class _Announcement(event.Listener):
    """Says once that the first step takes longer: numba announces what is not in its cache."""

    said = False

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if not self.said and function.__module__.startswith("toreqprop."):
            self.said = True
            again = "the next process finds it ready" if _KEPT else "in this process"
            _log.warning("Compiling the loops for this processor, which takes seconds: %s.", again)

    def on_end(self, event: Any) -> None:
        """Nothing to say."""


if _alone:
    event.register("numba:compile", _Announcement())
