"""A benchmark that waits for a signal: runs in excess of a number wait until they are killed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toreqprop.evidence import Job, Record, Store, runner

AFTER = "TESTS_HELD_AFTER"
MARK = "TESTS_HELD_MARK"
_keep = runner.keep
_perform_and_keep = runner.perform_and_keep


def keep(job: Job, store: Store, report: Callable[[Any], None]) -> Record:
    """As the real one, unless as many runs are finished as the test wants before its signal."""
    if _enough(store):
        _wait()
    return _keep(job, store, report)


def perform_and_keep(job: Job, store: Store, fresh: bool) -> Record:
    """The same in a worker: the first to wait leaves its number, the others go through."""
    mark = Path(os.environ[MARK])
    if _enough(store) and not mark.exists():
        mark.with_suffix(".new").write_text(str(os.getpid()))
        mark.with_suffix(".new").rename(mark)
        _wait()
    return _perform_and_keep(job, store, fresh)


def _enough(store: Store) -> bool:
    return len(list(store.folder.glob("[!.]*.json"))) >= int(os.environ[AFTER])


def _wait() -> None:
    while True:
        time.sleep(0.05)


if __name__ == "__main__":
    from toreqprop.cli import main

    runner.keep = keep
    main()
