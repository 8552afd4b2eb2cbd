"""How far a measurement lies from its bound, as places on a bar from 0 to 100.

On every bar the bound is at `BOUND` and what it allows is to the right of it, whatever the
relation, so that bars can be compared at a glance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from toreqprop.verify.verdict import Check

BOUND = 30.0
HALF = 0.5
"""The distance, relative to the bound, that takes half of the room on its side."""

LOGARITHMIC = 20.0
"""Where measurement and bound differ by more than this factor, powers of ten are counted."""


def gauge(check: Check) -> dict[str, Any] | None:
    """Where the measurement and the ends of its interval lie; None where nothing can be shown.

    A distance d goes to the share ``d/(d + HALF)`` of the bar on its side; d is ``|x − limit|``
    over the limit, or the powers of ten between them.
    """
    measured, limit = check.measured, check.limit
    if measured is None or not math.isfinite(limit):
        return None
    logarithmic = min(measured, limit) > 0 and not (
        1 / LOGARITHMIC <= measured / limit <= LOGARITHMIC
    )
    room = _room(check, logarithmic)
    ends = [room(end) for end in (measured, check.low, check.high) if end is not None]
    return {
        "point": _place(room(measured)),
        "low": _place(min(ends)),
        "high": _place(max(ends)),
        "logarithmic": logarithmic,
    }


def _room(check: Check, logarithmic: bool) -> Callable[[float], float]:
    """How much further a value could have gone before it breaks the bound; negative beyond it."""
    limit, relation = check.limit, check.bound.relation
    scale = abs(limit) or max(abs(check.measured or 0.0), 1.0)

    def room(value: float) -> float:
        if relation == "equivalent within":
            return (limit - abs(value)) / scale
        if logarithmic:
            distance = math.log10(max(value, 1e-300)) - math.log10(limit)
        else:
            distance = (value - limit) / scale
        return -distance if relation in ("<=", "<") else distance

    return room


def _place(room: float) -> float:
    share = abs(room) / (abs(room) + HALF)
    side = 100 - BOUND if room >= 0 else -BOUND
    return round(BOUND + side * share, 2)
