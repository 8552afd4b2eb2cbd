"""What tests that start programs share."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
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


def kill_when_there(mark: Path, ready: Callable[[], bool] = lambda: True) -> Future[int]:
    """Kill the process that leaves its number in a file, as soon as it has and all is ready."""
    killed: Future[int] = Future()

    def kill() -> None:
        while not (mark.exists() and ready()):
            time.sleep(0.01)
        number = int(mark.read_text())
        os.kill(number, signal.SIGKILL)
        killed.set_result(number)

    # A test that fails before there is a number must not wait for it at the end of the program.
    threading.Thread(target=kill, daemon=True).start()
    return killed
