"""Statistics of paired runs: interval, t-test, equivalence, effect size, distance from chance.

Every function is total: where a figure is undefined (one seed, no variance) it is None or the
limit it tends to, never NaN, so that a report can print it. Scores are in percentage points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from toreqprop.errors import InvalidInputError

CONFIDENCE = 0.95
SIGNIFICANCE = 0.05
MARGIN = 1.0
"""Percentage points within which two accuracies count as equivalent."""


@dataclass(frozen=True)
class Summary:
    """Mean, standard deviation (n − 1) and t-interval of scores; None where one score is too few.

    ``low`` and ``high`` bound the mean at the confidence `CONFIDENCE`.
    """

    n: int
    mean: float
    sd: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Comparison:
    """Scores of two models on the same seeds, as differences ``first − second``.

    ``gap`` holds the mean difference with its interval; ``t`` and ``p`` the paired t-test (two
    sided); ``cohens_d`` the gap over the pooled deviation; ``equivalence_p`` the p-value of the two
    one-sided tests at ``margin``; ``smallest_margin`` the margin above which they find equivalence.
    """

    gap: Summary
    t: float | None
    p: float | None
    cohens_d: float | None
    margin: float
    equivalence_p: float | None
    equivalent: bool | None
    smallest_margin: float | None


def summarise(scores: Sequence[float]) -> Summary:
    """Describe scores; without variance the interval is the point itself."""
    n = len(scores)
    if n == 0:
        raise InvalidInputError("There are no scores to summarise: pass at least one.")
    mean = math.fsum(scores) / n
    if n == 1:
        return Summary(1, mean, None, None, None)
    sd = _deviation(scores)
    half = _t_quantile(0.5 + CONFIDENCE / 2, n - 1) * sd / math.sqrt(n)
    return Summary(n, mean, sd, mean - half, mean + half)


def compare(first: Sequence[float], second: Sequence[float], margin: float = MARGIN) -> Comparison:
    """Compare paired scores, one pair per seed.

    The equivalence test (TOST) rejects "they differ by at least ``margin``" where both one-sided
    tests do at `SIGNIFICANCE`. That happens exactly for margins above
    ``|gap| + t(1 − SIGNIFICANCE, n − 1)·sd/√n``, which is the smallest margin reported.
    """
    if len(first) != len(second):
        raise InvalidInputError(
            f"Paired scores must be equally many, got {len(first)} and {len(second)}."
        )
    if not margin > 0:
        raise InvalidInputError(f"margin must be > 0, got {margin}. Typical: 1 point.")
    gap = summarise([a - b for a, b in zip(first, second, strict=True)])
    if gap.sd is None:
        return Comparison(gap, None, None, None, margin, None, None, None)
    pooled = math.sqrt((_deviation(first) ** 2 + _deviation(second) ** 2) / 2)
    effect = gap.mean / pooled if pooled > 0 else (0.0 if gap.mean == 0 else None)
    freedom, error = gap.n - 1, gap.sd / math.sqrt(gap.n)
    t, p = _t_test(gap.mean, error, freedom)
    below = _upper_tail(gap.mean + margin, error, freedom)
    above = _upper_tail(margin - gap.mean, error, freedom)
    equivalence_p = max(below, above)
    smallest = abs(gap.mean) + _t_quantile(1 - SIGNIFICANCE, freedom) * error
    return Comparison(
        gap, t, p, effect, margin, equivalence_p, equivalence_p < SIGNIFICANCE, smallest
    )


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson interval of a proportion at the confidence `CONFIDENCE`."""
    from scipy.stats import norm

    if trials < 1:
        raise InvalidInputError(f"trials must be >= 1, got {trials}.")
    z = float(norm.ppf(0.5 + CONFIDENCE / 2))
    share = successes / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    spread = share * (1 - share) / trials + z * z / (4 * trials * trials)
    half = z / (1 + z * z / trials) * math.sqrt(spread)
    return max(0.0, centre - half), min(1.0, centre + half)


def _deviation(scores: Sequence[float]) -> float:
    """Standard deviation (n − 1); exactly zero for equal scores, whatever their mean rounds to."""
    if all(s == scores[0] for s in scores):
        return 0.0
    mean = math.fsum(scores) / len(scores)
    return math.sqrt(math.fsum((s - mean) ** 2 for s in scores) / (len(scores) - 1))


def _t_test(mean: float, error: float, freedom: int) -> tuple[float | None, float]:
    from scipy.stats import t

    if error == 0:
        # Identical differences: no evidence at all, or a difference that never varies.
        return (0.0, 1.0) if mean == 0 else (None, 0.0)
    ratio = mean / error
    return ratio, float(2 * t.sf(abs(ratio), freedom))


def _upper_tail(distance: float, error: float, freedom: int) -> float:
    from scipy.stats import t

    if error == 0:
        return 0.0 if distance > 0 else 1.0
    return float(t.sf(distance / error, freedom))


def _t_quantile(probability: float, freedom: int) -> float:
    from scipy.stats import t

    return float(t.ppf(probability, freedom))
