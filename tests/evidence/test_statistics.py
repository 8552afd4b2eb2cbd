"""The benchmark's statistics against SciPy and statsmodels, and where those give NaN."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import DescrStatsW, ttost_paired

from toreqprop.errors import InvalidInputError
from toreqprop.evidence.statistics import above_chance, compare, exceeds, holm, summarise, wilson

RNG = np.random.default_rng(7)
CASES = [
    (list(95 + RNG.normal(size=n)), list(95.2 + RNG.normal(size=n) * spread))
    for n, spread in ((2, 1.0), (3, 0.1), (3, 2.0), (5, 1.0), (20, 0.5))
]
CLOSE = 1e-9  # both sides are float64 sums over at most 20 numbers near 100


@pytest.mark.parametrize(("first", "second"), CASES)
def test_summary_agrees_with_statsmodels(first: list[float], second: list[float]) -> None:
    mine, theirs = summarise(first), DescrStatsW(first)
    assert mine.mean == pytest.approx(theirs.mean, abs=CLOSE)
    assert mine.sd == pytest.approx(np.std(first, ddof=1), abs=CLOSE)
    assert (mine.low, mine.high) == pytest.approx(theirs.tconfint_mean(0.05), abs=CLOSE)


@pytest.mark.parametrize(("first", "second"), CASES)
def test_paired_test_agrees_with_scipy(first: list[float], second: list[float]) -> None:
    mine, theirs = compare(first, second), stats.ttest_rel(first, second)
    assert mine.t == pytest.approx(theirs.statistic, rel=1e-7)
    assert mine.p == pytest.approx(theirs.pvalue, rel=1e-7)
    low, high = theirs.confidence_interval(0.95)
    assert (mine.gap.low, mine.gap.high) == pytest.approx((low, high), abs=CLOSE)


@pytest.mark.parametrize("margin", [0.3, 1.0, 3.0])
@pytest.mark.parametrize(("first", "second"), CASES)
def test_equivalence_agrees_with_statsmodels(
    first: list[float], second: list[float], margin: float
) -> None:
    theirs, _, _ = ttost_paired(np.array(first), np.array(second), -margin, margin)
    mine = compare(first, second, margin)
    assert mine.equivalence_p == pytest.approx(theirs, rel=1e-7)
    assert mine.equivalent == (theirs < 0.05)


@pytest.mark.parametrize(("first", "second"), CASES)
def test_the_smallest_margin_is_where_equivalence_begins(
    first: list[float], second: list[float]
) -> None:
    edge = compare(first, second).smallest_margin
    assert edge is not None
    assert compare(first, second, edge * 1.0001).equivalent
    assert not compare(first, second, edge * 0.9999).equivalent


def test_cohens_d_is_the_gap_in_pooled_deviations() -> None:
    # Means 2 and 5, both with variance 1: three deviations apart.
    assert compare([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]).cohens_d == pytest.approx(-3.0)


def test_a_wide_spread_is_not_equivalence_however_small_the_gap() -> None:
    mine = compare([90.0, 95.0, 100.0], [100.0, 95.0, 90.0])
    assert mine.gap.mean == 0
    assert mine.p is not None
    assert mine.p > 0.9  # no difference found ...
    assert mine.equivalent is False  # ... and none excluded either


def test_a_significant_difference_can_still_be_equivalent() -> None:
    mine = compare([95.30, 95.31, 95.29], [95.00, 95.01, 95.00])
    assert mine.p is not None
    assert mine.p < 0.05
    assert mine.equivalent is True


@pytest.mark.parametrize(
    ("first", "second", "p", "equivalent"),
    [
        ([95.0, 95.0, 95.0], [95.0, 95.0, 95.0], 1.0, True),
        ([95.0, 95.0, 95.0], [94.5, 94.5, 94.5], 0.0, True),
        ([95.0, 95.0, 95.0], [90.0, 90.0, 90.0], 0.0, False),
        ([95.1, 95.3, 95.7], [95.1, 95.3, 95.7], 1.0, True),
    ],
)
def test_without_variance_there_is_no_nan(
    first: list[float], second: list[float], p: float, equivalent: bool
) -> None:
    mine = compare(first, second)
    assert mine.p == p
    assert mine.equivalent is equivalent
    assert mine.smallest_margin == abs(mine.gap.mean)
    assert (mine.gap.low, mine.gap.high) == (mine.gap.mean, mine.gap.mean)
    json.dumps(asdict(mine), allow_nan=False)


def test_one_seed_has_a_mean_and_nothing_else() -> None:
    mine = compare([95.0], [94.0])
    assert mine.gap.mean == 1.0
    assert (mine.gap.sd, mine.gap.low, mine.p, mine.equivalent) == (None, None, None, None)


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (7, 10), (9420, 10_000), (10, 10)])
def test_wilson_agrees_with_statsmodels(hits: int, trials: int) -> None:
    assert wilson(hits, trials) == pytest.approx(
        proportion_confint(hits, trials, 0.05, "wilson"), abs=1e-12
    )


def test_bad_scores_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="equally many"):
        compare([1.0, 2.0], [1.0])
    with pytest.raises(InvalidInputError, match="margin must be > 0"):
        compare([1.0, 2.0], [1.0, 2.0], -1.0)
    with pytest.raises(InvalidInputError, match="at least one"):
        summarise([])


def test_equal_scores_have_exactly_no_deviation() -> None:
    # The mean of three 94.1s is not 94.1 in float64; the deviation must be zero all the same.
    assert summarise([94.1, 94.1, 94.1]).sd == 0.0
    assert not math.isnan(summarise([94.1, 94.1, 94.1]).mean)


def test_holm_multiplies_the_smallest_by_all() -> None:
    # By hand: sorted 0.01, 0.02, 0.04 become 3·0.01, max(0.03, 2·0.02), max(0.04, 0.04).
    assert holm([0.04, 0.01, None, 0.02]) == pytest.approx([0.04, 0.03, None, 0.04])
    assert holm([None]) == [None]


def test_chance_is_not_beaten_by_luck() -> None:
    assert above_chance([11.0, 9.0, 10.5], 10.0, 0, 1) > 0.2
    assert above_chance([90.0, 91.0, 92.0], 10.0, 0, 1) < 1e-3
    assert above_chance([50.0], 50.0, 50, 100) > 0.4  # one seed: the samples decide
    assert above_chance([70.0], 50.0, 70, 100) < 1e-3


@pytest.mark.parametrize(("first", "second"), CASES)
@pytest.mark.parametrize("by", [0.0, -1.0])
def test_one_sided_test_agrees_with_scipy(
    first: list[float], second: list[float], by: float
) -> None:
    shifted = [b + by for b in second]
    expected = stats.ttest_rel(first, shifted, alternative="greater").pvalue
    assert exceeds(first, second, by) == pytest.approx(expected, abs=CLOSE)


def test_one_sided_test_without_variance() -> None:
    assert exceeds([1.0], [0.0]) is None
    assert exceeds([1.0, 2.0], [0.5, 1.5]) == 0.0
    assert exceeds([1.0, 2.0], [1.0, 2.0]) == 1.0
    assert exceeds([1.0, 2.0], [1.0, 2.0], by=-1.0) == 0.0
