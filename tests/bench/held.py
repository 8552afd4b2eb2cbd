"""A benchmark that stops for a signal: runs in excess of a number wait until they are killed."""

from __future__ import annotations

import os
import time
from typing import Any

from toreqprop.bench.store import Store

from toreqprop.bench import runner
from toreqprop.bench.run import Run

VARIABLE = "TESTS_HELD_AFTER"
_real = runner._run_in_worker


def run_in_worker(run: Run, store: Store) -> dict[str, Any]:
    """As the real one, unless as many runs are finished as the test wants before its signal."""
    if len(list(store.folder.glob("[!.]*.json"))) >= int(os.environ[VARIABLE]):
        while True:
            time.sleep(1)
    return _real(run, store)


if __name__ == "__main__":
    from tests.bench import held  # by its name, as the workers import it
    from toreqprop.cli import main

    runner._run_in_worker = held.run_in_worker
    main()
