"""How far a measurement lies from its bound, as places on a bar from 0 to 100."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from toreqprop.verify.verdict import Check

LOGARITHMIC = 20.0
"""Where measurement and bound differ by more than this factor, the bar counts powers of ten."""


def gauge(check: Check) -> dict[str, Any] | None:
    """Where the measurement, its interval and the part that is allowed lie on the bar; None where
    there is nothing to show.

    ``logarithmic`` bars count powers of ten; an interval that leaves the bar is cut at its ends.
    """
    measured, limit = check.measured, check.limit
    if measured is None or not math.isfinite(limit):
        return None
    band = check.bound.relation == "equivalent within"
    ends = [-limit, limit] if band else [limit]
    marks = [measured, *ends]
    logarithmic = min(marks) > 0 and max(marks) / min(marks) > LOGARITHMIC
    place = _places(marks, logarithmic)
    if band:
        zone = place(-limit), place(limit)
    elif check.bound.relation in ("<=", "<"):
        zone = 0.0, place(limit)
    else:
        zone = place(limit), 100.0
    low, high = (measured if end is None else end for end in (check.low, check.high))
    return {
        "point": place(measured),
        "low": place(low),
        "high": place(high),
        "from": zone[0],
        "to": zone[1],
        "logarithmic": logarithmic,
    }


def _places(marks: list[float], logarithmic: bool) -> Callable[[float], float]:
    """From values to places on the bar, with room on both sides of what has to be seen."""

    def scaled(value: float) -> float:
        return math.log10(max(value, 1e-300)) if logarithmic else value

    points = [scaled(m) for m in marks]
    span = max(points) - min(points)
    room = 0.3 * span if span > 0 else (0.3 * abs(points[0]) or 1.0)
    first, last = min(points) - room, max(points) + room

    def place(value: float) -> float:
        share = (scaled(value) - first) / (last - first)
        return round(100 * min(1.0, max(0.0, share)), 2)

    return place
