"""What tests that start programs share."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def listen_to_interrupts() -> None:
    """For ``preexec_fn``: a test run in the background of a shell inherits that SIGINT is ignored,
    and its children would ignore the Ctrl-C that is being tested."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def running(command: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A program that does not outlive the test, whatever happens to it."""
    process = subprocess.Popen(
        command, text=True, preexec_fn=listen_to_interrupts, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, **options,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_until(process: subprocess.Popen[str], reached: Callable[[], bool]) -> None:
    """Wait as long as the program runs: no clock decides, as the machine may be busy."""
    while not reached():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
