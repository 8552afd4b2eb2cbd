"""What tests that start programs share."""

from __future__ import annotations

import signal


def listen_to_interrupts() -> None:
    """For ``preexec_fn``: a test run in the background of a shell inherits that SIGINT is ignored,
    and its children would ignore the Ctrl-C that is being tested."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
