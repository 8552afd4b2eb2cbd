"""The simulator: tests fail without it in CI, and are skipped elsewhere."""

from __future__ import annotations

import os

import pytest

from toreqprop.hardware import Ngspice, SpiceError


@pytest.fixture(scope="session")
def ngspice() -> Ngspice:
    found = Ngspice(timeout=86_400)  # no clock decides: the machine may be busy
    try:
        found.path()
    except SpiceError as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    return found
