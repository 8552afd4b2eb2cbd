"""Statistics of paired runs: interval, t-test, equivalence, effect size, distance from chance.

Every function is total: where a figure is undefined (one seed, no variance) it is None or the
limit it tends to, never NaN, so that a report can print it. Scores are in percentage points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from toreqprop.errors import InvalidInputError

CONFIDENCE = 0.95
SIGNIFICANCE = 0.05
MARGIN = 1.0
"""Percentage points within which two accuracies count as equivalent."""

ROUNDING = 1e-9
"""Differences that vary by less do not vary: a score is a count over fewer than 1e9 answers."""


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
    if sd == 0:
        return Summary(n, mean, 0.0, mean, mean)
    from scipy.stats import t

    low, high = t.interval(CONFIDENCE, n - 1, loc=mean, scale=sd / math.sqrt(n))
    return Summary(n, mean, sd, float(low), float(high))


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
    if gap.sd < ROUNDING:
        return _without_variance(gap, effect, margin)
    from scipy.stats import t as student
    from scipy.stats import ttest_rel
    from statsmodels.stats.weightstats import ttost_paired

    found = ttest_rel(first, second)
    equivalence_p = float(ttost_paired(np.array(first), np.array(second), -margin, margin)[0])
    error = gap.sd / math.sqrt(gap.n)
    smallest = abs(gap.mean) + float(student.ppf(1 - SIGNIFICANCE, gap.n - 1)) * error
    return Comparison(
        gap, float(found.statistic), float(found.pvalue), effect, margin,
        equivalence_p, equivalence_p < SIGNIFICANCE, smallest,
    )  # fmt: skip


def exceeds(first: Sequence[float], second: Sequence[float], by: float = 0.0) -> float | None:
    """p-value of "``first − second`` is ``by`` or less on average": Student's t over pairs, one
    sided; None where one pair is too few."""
    from scipy.stats import ttest_1samp

    gaps = [a - b for a, b in zip(first, second, strict=True)]
    if len(gaps) < 2:
        return None
    if _deviation(gaps) < ROUNDING:
        return 0.0 if gaps[0] > by else 1.0
    return float(ttest_1samp(gaps, by, alternative="greater").pvalue)


def _without_variance(gap: Summary, effect: float | None, margin: float) -> Comparison:
    """Identical differences: no evidence at all, or a difference that never varies."""
    t, p = (0.0, 1.0) if gap.mean == 0 else (None, 0.0)
    inside = abs(gap.mean) < margin
    return Comparison(gap, t, p, effect, margin, 0.0 if inside else 1.0, inside, abs(gap.mean))


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Wilson interval of a proportion at the confidence `CONFIDENCE`."""
    from statsmodels.stats.proportion import proportion_confint

    if trials < 1:
        raise InvalidInputError(f"trials must be >= 1, got {trials}.")
    low, high = proportion_confint(successes, trials, 1 - CONFIDENCE, "wilson")
    return max(0.0, float(low)), min(1.0, float(high))


def above_chance(scores: Sequence[float], chance: float, correct: int, trials: int) -> float:
    """p-value of "no better than chance": Student's t over seeds, or the binomial test of
    ``correct`` among ``trials`` where there is one seed or no variance. Scores and chance in
    percent."""
    from scipy.stats import binomtest, ttest_1samp

    if len(scores) > 1 and _deviation(scores) > 0:
        return float(ttest_1samp(scores, chance, alternative="greater").pvalue)
    return float(binomtest(correct, trials, chance / 100, alternative="greater").pvalue)


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjusted p-values of several tests (Holm 1979); None stays None and counts for nothing."""
    from statsmodels.stats.multitest import multipletests

    known = [p for p in p_values if p is not None]
    adjusted = iter(multipletests(known, method="holm")[1] if known else [])
    return [None if p is None else float(next(adjusted)) for p in p_values]


def _deviation(scores: Sequence[float]) -> float:
    """Standard deviation (n − 1); exactly zero for equal scores, whatever their mean rounds to."""
    return 0.0 if all(s == scores[0] for s in scores) else float(np.std(scores, ddof=1))
