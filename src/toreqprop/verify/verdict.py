"""The one rule from measurements and bounds to status and score.

1. A bound holds if its measurement exists, is finite and satisfies its relation. A measurement
   that is missing, NaN or infinite holds nothing.
2. Every accuracy brings a required bound of its own, whether the track lists it or not: the lower
   end of its 95 % interval exceeds chance. A number that is called an accuracy and carries no
   chance level fails the track.
3. An accuracy or a comparison over fewer seeds than the level asks for holds nothing.
4. PASS: all bounds hold. PARTIAL: all required ones do. FAIL: a required one does not, or the
   experiment broke. STUB: there is no experiment yet. NOT RUN: its data is not available.
5. The score is the weight of the bounds that hold over the weight of all, times 100.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from toreqprop.errors import InvalidInputError
from toreqprop.verify.levels import Level
from toreqprop.verify.measurements import Accuracy, Paired, Value

Relation = Literal["<=", ">=", "<", ">", "above chance", "equivalent within"]


class Status(Enum):
    """What the evidence says of a claim."""

    PASS = "PASS"
    PARTIAL = "PARTIAL"
    FAIL = "FAIL"
    STUB = "STUB"
    NOT_RUN = "NOT RUN"


@dataclass(frozen=True)
class Bound:
    """One thing that must (``required``) or should be true of one measurement.

    ``says`` names the measurement in words a reader of the report understands.
    """

    measurement: str
    relation: Relation
    limit: float
    says: str
    required: bool = True
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.weight > 0:
            raise InvalidInputError(f"weight must be > 0, got {self.weight}.")


@dataclass(frozen=True)
class Check:
    """A bound with what was measured; ``low`` and ``high`` where there is an interval, ``chance``
    where that is what an accuracy is held against."""

    bound: Bound
    measured: float | None
    low: float | None
    high: float | None
    holds: bool
    reason: str
    chance: float | None = None

    @property
    def limit(self) -> float:
        """What the measurement is held against; NaN where that is not known."""
        if self.bound.relation == "above chance":
            return math.nan if self.chance is None else self.chance
        return self.bound.limit

    @property
    def kind(self) -> str:
        return "required" if self.bound.required else "desirable"


@dataclass(frozen=True)
class Verdict:
    """The status of a track, its score of 100 and the checks behind them."""

    status: Status
    score: float
    checks: tuple[Check, ...] = ()
    reason: str = ""


def at_most(measurement: str, limit: float, says: str, **rest: Any) -> Bound:
    """``measured ≤ limit``."""
    return Bound(measurement, "<=", limit, says, **rest)


def at_least(measurement: str, limit: float, says: str, **rest: Any) -> Bound:
    """``measured ≥ limit``."""
    return Bound(measurement, ">=", limit, says, **rest)


def below(measurement: str, limit: float, says: str, **rest: Any) -> Bound:
    """``measured < limit``."""
    return Bound(measurement, "<", limit, says, **rest)


def above(measurement: str, limit: float, says: str, **rest: Any) -> Bound:
    """``measured > limit``."""
    return Bound(measurement, ">", limit, says, **rest)


def above_chance(measurement: str, says: str, **rest: Any) -> Bound:
    """The interval of an accuracy lies above its chance level."""
    return Bound(measurement, "above chance", math.nan, says, **rest)


def equivalent(measurement: str, margin: float, says: str, **rest: Any) -> Bound:
    """Two one-sided tests find the mean difference of paired scores within ±``margin`` points."""
    return Bound(measurement, "equivalent within", margin, says, **rest)


def judge(bounds: Sequence[Bound], values: Mapping[str, Value | None], level: Level) -> Verdict:
    """Apply the rule above."""
    if not any(bound.required for bound in bounds):
        raise InvalidInputError("A track needs at least one required bound: else it cannot fail.")
    everything = [*bounds, *chance_guards(bounds, values)]
    checks = [check(bound, values.get(bound.measurement), level) for bound in everything]
    checks += unguarded(values)
    if all(c.holds for c in checks):
        status = Status.PASS
    elif all(c.holds for c in checks if c.bound.required):
        status = Status.PARTIAL
    else:
        status = Status.FAIL
    total = math.fsum(c.bound.weight for c in checks)
    held = math.fsum(c.bound.weight for c in checks if c.holds)
    return Verdict(status, 100 * held / total, tuple(checks))


def chance_guards(bounds: Sequence[Bound], values: Mapping[str, Value | None]) -> list[Bound]:
    """The bounds of rule 2 that the track did not list itself."""
    listed = {b.measurement for b in bounds if b.relation == "above chance" and b.required}
    return [
        above_chance(name, f"{name.replace('_', ' ')} above chance")
        for name, value in values.items()
        if isinstance(value, Accuracy) and not value.contrast and name not in listed
    ]


def unguarded(values: Mapping[str, Value | None]) -> list[Check]:
    """One failed check for every number that is called an accuracy and has no chance level."""
    return [
        Check(
            above_chance(name, f"{name.replace('_', ' ')} above chance"),
            None,
            None,
            None,
            False,
            "an accuracy without a chance level proves nothing",
        )
        for name, value in values.items()
        if "accuracy" in name.lower() and not isinstance(value, (Accuracy, Paired))
    ]


def check(bound: Bound, value: Value | None, level: Level) -> Check:
    """Hold one bound against its measurement."""
    if value is None:
        return Check(bound, None, None, None, False, "not measured, or not finite")
    if isinstance(value, Accuracy):
        return _check_accuracy(bound, value, level)
    if isinstance(value, Paired):
        return _check_paired(bound, value, level)
    if bound.relation in ("above chance", "equivalent within"):
        return Check(bound, None, None, None, False, "a plain number has neither chance nor pairs")
    number = float(value)
    if not math.isfinite(number):
        return Check(bound, None, None, None, False, "not finite")
    return Check(bound, number, None, None, _compare(number, bound), "")


def _compare(number: float, bound: Bound) -> bool:
    return {
        "<=": number <= bound.limit,
        ">=": number >= bound.limit,
        "<": number < bound.limit,
        ">": number > bound.limit,
    }[bound.relation]


def _check_accuracy(bound: Bound, value: Accuracy, level: Level) -> Check:
    low, high = value.interval
    mean = value.mean
    if not all(map(math.isfinite, (low, high, mean))):
        return Check(bound, None, None, None, False, "not finite")
    few = _too_few(len(value.correct), level)
    if bound.relation == "above chance":
        chance = value.chance_percent
        held, reason = not few and low > chance, few or f"chance {chance:.1f} %"
        return Check(bound, mean, low, high, held, reason, chance)
    if bound.relation == "equivalent within":
        return Check(bound, mean, low, high, False, "one accuracy has nothing to be equivalent to")
    return Check(bound, mean, low, high, not few and _compare(mean, bound), few)


def _check_paired(bound: Bound, value: Paired, level: Level) -> Check:
    if not value.first or not all(map(math.isfinite, (*value.first, *value.second))):
        return Check(bound, None, None, None, False, "not measured, or not finite")
    few = _too_few(len(value.first), level)
    if bound.relation == "equivalent within":
        found = value.compare(bound.limit)
        if found.equivalence_p is None:
            reason = "an equivalence test needs at least two seeds"
            return Check(bound, found.gap.mean, None, None, False, reason)
        reason = few or f"equivalence test p = {found.equivalence_p:.2g}"
        held = not few and bool(found.equivalent)
        return Check(bound, found.gap.mean, found.gap.low, found.gap.high, held, reason)
    if bound.relation == "above chance":
        return Check(bound, None, None, None, False, "a difference has no chance level")
    gap = value.compare(1.0).gap
    return Check(bound, gap.mean, gap.low, gap.high, not few and _compare(gap.mean, bound), few)


def _too_few(count: int, level: Level) -> str:
    if count >= level.least_seeds:
        return ""
    return f"{count} seeds, level {level.title} needs {level.least_seeds}"
