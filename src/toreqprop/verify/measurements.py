"""What an experiment may return: numbers, accuracies, comparisons, tables and figures.

There is no place here for a verdict: `verdict.judge` computes it from these values and the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from toreqprop.evidence.statistics import Comparison, compare, summarise, wilson


@dataclass(frozen=True)
class Accuracy:
    """Correct answers among ``total``, one entry per seed, and the accuracy of knowing nothing.

    ``contrast`` marks a network that is shown for comparison and may fail: it is reported with its
    chance level like any other, but not held against it.
    """

    correct: tuple[int, ...]
    total: tuple[int, ...]
    chance: float
    contrast: bool = False

    @property
    def scores(self) -> tuple[float, ...]:
        """Percent correct, by seed."""
        return tuple(100 * c / t for c, t in zip(self.correct, self.total, strict=True))

    @property
    def mean(self) -> float:
        """Mean percent correct."""
        return summarise(self.scores).mean if self.correct else math.nan

    @property
    def chance_percent(self) -> float:
        """Percent correct of always naming the most frequent class of the test labels."""
        return 100 * self.chance

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval in percent: the wider end of the t-interval over seeds and of Wilson's over
        all answers, so that neither few seeds nor few samples make it look certain."""
        if not self.correct:
            return math.nan, math.nan
        low, high = (100 * end for end in wilson(sum(self.correct), sum(self.total)))
        over_seeds = summarise(self.scores)
        if over_seeds.low is not None and over_seeds.high is not None:
            low, high = min(low, over_seeds.low), max(high, over_seeds.high)
        return max(0.0, low), min(100.0, high)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.mean:.1f} % ({low:.1f} to {high:.1f}, chance {self.chance_percent:.1f})"


@dataclass(frozen=True)
class Paired:
    """Scores of two methods on the same seeds, in percent."""

    first: tuple[float, ...]
    second: tuple[float, ...]

    def compare(self, margin: float) -> Comparison:
        """The paired statistics, ``first − second``."""
        return compare(self.first, self.second, margin)

    def __str__(self) -> str:
        gap = self.compare(1.0).gap
        interval = "" if gap.low is None else f" (95 % interval {gap.low:+.2f} to {gap.high:+.2f})"
        return f"{gap.mean:+.2f} points{interval}"


Value = float | int | bool | Accuracy | Paired


@dataclass(frozen=True)
class Column:
    """A heading and the format of the numbers under it; text is shown as it is."""

    name: str
    format: str = ""


@dataclass(frozen=True)
class Table:
    """Raw numbers in rows; ``volatile`` if a second run gives others (times, memory)."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    volatile: bool = False


@dataclass(frozen=True)
class Series:
    """One curve, or one group of bars where ``x`` holds names."""

    label: str
    x: tuple[Any, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Figure:
    """What a figure shows; ``lines`` are horizontal reference lines by label."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    lines: dict[str, float] = field(default_factory=dict)
    log_x: bool = False
    log_y: bool = False
    bars: bool = False
    volatile: bool = False


@dataclass(frozen=True)
class Measurements:
    """The result of an experiment. Bounds look up ``values`` and ``timings`` by name.

    ``timings`` holds what a second run cannot repeat exactly (seconds, bytes, their ratios): it is
    judged like the rest and left out of the reproducibility hash.
    """

    values: Mapping[str, Value]
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    timings: Mapping[str, float] = field(default_factory=dict)


def encode(value: Value) -> Any:
    """Plain data for JSON; what is not finite becomes None and can meet no bound."""
    if isinstance(value, Accuracy):
        low, high = value.interval
        derived = {"mean": value.mean, "low": low, "high": high}
        return {"kind": "accuracy", **asdict(value), **plain(derived)}
    if isinstance(value, Paired):
        return {"kind": "paired", **plain(asdict(value))}
    return plain(value)


def decode(stored: Any) -> Value | None:
    """The inverse of `encode`."""
    if isinstance(stored, dict) and stored.get("kind") == "accuracy":
        return Accuracy(
            tuple(stored["correct"]), tuple(stored["total"]), stored["chance"], stored["contrast"]
        )
    if isinstance(stored, dict) and stored.get("kind") == "paired":
        return Paired(tuple(stored["first"]), tuple(stored["second"]))
    return stored


def plain(item: Any) -> Any:
    """Nested data with tuples as lists, NumPy scalars as numbers and non-finite numbers as None."""
    if isinstance(item, dict):
        return {str(key): plain(value) for key, value in item.items()}
    if isinstance(item, (list, tuple)):
        return [plain(value) for value in item]
    if isinstance(item, (bool, str)) or item is None:
        return item
    if isinstance(item, int):
        return item
    number = float(item)
    return number if math.isfinite(number) else None


def pooled(parts: Sequence[Accuracy]) -> Accuracy:
    """The accuracies of several seeds as one; the chance level is the largest."""
    return Accuracy(
        tuple(c for part in parts for c in part.correct),
        tuple(t for part in parts for t in part.total),
        max(part.chance for part in parts),
        any(part.contrast for part in parts),
    )
