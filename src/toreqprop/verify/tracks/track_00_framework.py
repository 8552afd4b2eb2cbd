"""Track 0: the statistics that every other verdict rests on."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from toreqprop.evidence import statistics
from toreqprop.verify.levels import QUICK, Level
from toreqprop.verify.measurements import (
    Accuracy,
    Column,
    Figure,
    Measurements,
    Paired,
    Series,
    Table,
    Value,
)
from toreqprop.verify.track import Context, Sabotage, Track
from toreqprop.verify.verdict import (
    Bound,
    Status,
    above_chance,
    at_least,
    at_most,
    equivalent,
    judge,
)

SIZES = (3, 5, 10)
CLASSES, TEST_SAMPLES, MARGIN, SPREAD = 10, 400, 1.0, 1.0


def run(context: Context) -> Measurements:
    draws = draws_of(context.level)
    rng = np.random.default_rng(context.seed)
    compare = _with_normal_tails if context.sabotaged("normal tails") else _compare
    errors = _against_libraries(rng, compare, 60)
    rows, rates = [], {}
    for n in SIZES:
        context.report(f"simulating {draws} null experiments of {n} seeds")
        rates[n] = _rates(rng, compare, n, draws, guard=not context.sabotaged("no chance guard"))
        rows += [(name, n, draws, 100 * rate) for name, rate in rates[n].items()]
    worst = {name: max(rates[n][name] for n in SIZES) for name in rates[SIZES[0]]}
    least = {name: min(rates[n][name] for n in SIZES) for name in rates[SIZES[0]]}
    return Measurements(
        values={
            "draws": draws,
            "t_error": errors["t"],
            "p_error": errors["p"],
            "tost_error": errors["equivalence p"],
            "wilson_error": errors["Wilson"],
            "t_rate_least": least["t-test, no difference"],
            "t_rate": worst["t-test, no difference"],
            "tost_rate": worst["equivalence, gap at the margin"],
            "guard_rate": worst["verdict, chance classifier"],
            "power": least["verdict, 90 % classifier"],
        },
        tables=(
            Table(
                "Largest deviation from SciPy and statsmodels over 60 random samples",
                (Column("statistic"), Column("largest deviation", ".1e")),
                tuple(errors.items()),
            ),
            Table(
                "Share of simulated experiments called positive",
                (
                    Column("experiment"),
                    Column("seeds", "d"),
                    Column("simulated", "d"),
                    Column("called positive, %", ".2f"),
                ),
                tuple(rows),
            ),
        ),
        figures=(
            Figure(
                "False positives under the null",
                "seeds per experiment",
                "called positive, %",
                tuple(
                    Series(name, SIZES, tuple(100 * rates[n][name] for n in SIZES))
                    for name in rates[SIZES[0]]
                    if name != "verdict, 90 % classifier"
                ),
                lines={"nominal 5 %": 5.0},
            ),
        ),
    )


Compare = Callable[[list[float], list[float]], statistics.Comparison]


def _compare(first: list[float], second: list[float]) -> statistics.Comparison:
    return statistics.compare(first, second, MARGIN)


def _with_normal_tails(first: list[float], second: list[float]) -> statistics.Comparison:
    """The common mistake: a normal distribution where few seeds need Student's."""
    from dataclasses import replace

    from scipy.stats import norm

    found = _compare(first, second)
    assert found.t is not None
    assert found.gap.sd is not None
    error = found.gap.sd / math.sqrt(found.gap.n)
    tails = [norm.sf((MARGIN + s * found.gap.mean) / error) for s in (1, -1)]
    return replace(
        found,
        p=float(2 * norm.sf(abs(found.t))),
        equivalence_p=float(max(tails)),
        equivalent=bool(max(tails) < statistics.SIGNIFICANCE),
    )


def _against_libraries(rng: np.random.Generator, compare: Compare, count: int) -> dict[str, float]:
    from scipy.stats import ttest_rel
    from statsmodels.stats.proportion import proportion_confint
    from statsmodels.stats.weightstats import ttost_paired

    worst = dict.fromkeys(("t", "p", "equivalence p", "interval", "Wilson"), 0.0)

    def note(name: str, found: float, wanted: float) -> None:
        worst[name] = max(worst[name], abs(found - wanted) / max(1.0, abs(wanted)))

    for _ in range(count):
        n = int(rng.integers(2, 30))
        first = 95 + rng.normal(size=n)
        second = first + rng.normal(rng.normal(), 0.7, size=n)
        mine = compare(list(first), list(second))
        theirs = ttest_rel(first, second)
        inside = theirs.confidence_interval(statistics.CONFIDENCE)
        note("t", mine.t or 0.0, theirs.statistic)
        note("p", mine.p or 0.0, theirs.pvalue)
        note("interval", mine.gap.low or 0.0, inside.low)
        note("interval", mine.gap.high or 0.0, inside.high)
        note("equivalence p", mine.equivalence_p or 0.0, ttost_paired(first, second, -1, 1)[0])
        hits, trials = int(rng.integers(0, 101)), 100
        for a, b in zip(
            statistics.wilson(hits, trials),
            proportion_confint(hits, trials, alpha=0.05, method="wilson"),
            strict=True,
        ):
            note("Wilson", a, b)
    return worst


def _rates(
    rng: np.random.Generator, compare: Compare, n: int, draws: int, *, guard: bool
) -> dict[str, float]:
    """How often each test calls a simulated experiment positive; `verdict` is the harness's own."""
    positive = dict.fromkeys(
        (
            "t-test, no difference",
            "equivalence, gap at the margin",
            "verdict, chance classifier",
            "verdict, 90 % classifier",
        ),
        0,
    )
    for _ in range(draws):
        base = rng.normal(95, SPREAD, n)
        null = compare(list(base + rng.normal(0, SPREAD, n)), list(base))
        positive["t-test, no difference"] += null.p is not None and null.p < 0.05
        edge = compare(list(base + rng.normal(MARGIN, SPREAD, n)), list(base))
        positive["equivalence, gap at the margin"] += bool(edge.equivalent)
        for name, skill in (("chance", 1 / CLASSES), ("90 %", 0.9)):
            passed = _passes(rng.binomial(TEST_SAMPLES, skill, n), guard)
            positive[f"verdict, {name} classifier"] += passed
    return {name: count / draws for name, count in positive.items()}


def _passes(correct: np.ndarray, guard: bool) -> bool:
    """Would a track that reports these counts pass? With the guard off, whatever beats chance."""
    counts = tuple(int(c) for c in correct)
    accuracy = Accuracy(counts, (TEST_SAMPLES,) * len(counts), 1 / CLASSES)
    if not guard:
        return accuracy.mean > accuracy.chance_percent
    values: dict[str, Value] = {"score": accuracy, "gap": Paired(accuracy.scores, accuracy.scores)}
    rule = (above_chance("score", "above chance"), equivalent("gap", 3.0, "no gap"))
    return judge(rule, values, QUICK).status is Status.PASS


def draws_of(level: Level) -> int:
    return level.pick(1000, 4000, 8000)


def bounds(level: Level) -> tuple[Bound, ...]:
    # Three standard errors of a rate of 5 % over this many draws.
    slack = 3 * math.sqrt(0.05 * 0.95 / draws_of(level))
    return (
        at_most("t_error", 1e-9, "deviation of t from SciPy"),
        at_most("p_error", 1e-9, "deviation of p from SciPy"),
        at_most("tost_error", 1e-9, "deviation of the equivalence test from statsmodels"),
        at_most("wilson_error", 1e-9, "deviation of Wilson's interval from statsmodels"),
        at_most("t_rate", 0.05 + slack, "false positives of the t-test (5 % + 3 std errors)"),
        at_least("t_rate_least", 0.05 - slack, "false positives of the t-test (5 % - 3)"),
        at_most("tost_rate", 0.05 + slack, "false equivalences at the margin (5 % + 3)"),
        at_most("guard_rate", 0.05 + slack, "guessing classifiers that pass (5 % + 3)"),
        at_least("power", 0.99, "share of 90 % classifiers that pass"),
    )


TRACK = Track(
    number=0,
    title="Framework Validation",
    claim="The statistics agree with SciPy and statsmodels, and the harness passes at most 5 % of "
    "experiments in which there is nothing to find.",
    experiment="Random samples through both libraries; then simulated experiments under the null: "
    "equal models, a gap exactly at the margin, and classifiers that guess.",
    run=run,
    bounds=bounds,
    sabotages=(
        Sabotage("normal tails", "p-values from the normal distribution instead of Student's"),
        Sabotage("no chance guard", "an accuracy counts as soon as its mean exceeds chance"),
    ),
    statements=(
        "Of {draws} simulated experiments per row, the t-test called at most {t_rate:.1%} positive "
        "without a difference, and the equivalence test at most {tost_rate:.1%} with a gap at its "
        "margin.",
        "The harness's own rule passed {guard_rate:.1%} of classifiers that guess, and at least "
        "{power:.1%} of those that are right nine times in ten.",
    ),
    cost=8,
)
