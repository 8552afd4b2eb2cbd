"""What the tracks of circuits share: the simulator, or the sentence that says how to get it."""

from __future__ import annotations

from toreqprop.errors import DataUnavailableError
from toreqprop.hardware import Ngspice, SpiceError


def simulator() -> Ngspice:
    """ngspice; a track without it is not run, and the report says what helps.

    Raises:
        DataUnavailableError: it is not installed.
    """
    found = Ngspice()
    try:
        found.path()
    except SpiceError as missing:
        raise DataUnavailableError(f"{missing}.") from None
    return found
