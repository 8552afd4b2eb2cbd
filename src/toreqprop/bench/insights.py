"""What the figures say, in sentences filled from measurements; what is bad comes first."""

from __future__ import annotations

from collections.abc import Sequence

from toreqprop.bench.reports import probability
from toreqprop.bench.row_report import EQUIVALENT, NOT_SHOWN, WORSE, RowReport
from toreqprop.bench.studies import Sensitivity
from toreqprop.evidence.statistics import SIGNIFICANCE

MATTERS = 0.5
"""Points that cutting the recurrence must cost for a row to be said to use it."""


def mean_gap(rows: Sequence[RowReport]) -> float | None:
    """Mean gap to the stronger baseline in points, every task once."""
    gaps = [r.comparison.gap.mean for r in rows if r.counts]
    return sum(gaps) / len(gaps) if gaps else None


def insights(rows: Sequence[RowReport], study: Sensitivity | None) -> list[str]:
    """One sentence or two on each question, the unwelcome answers first."""
    if not rows:
        return []
    return [
        _real_gaps(rows),
        _equivalence(rows),
        *([] if study is None else _sensitivity(study)),
        _certificates(rows),
        _recurrence(rows),
        _implicit(rows),
        _cost(rows),
    ]


def conclusion(rows: Sequence[RowReport]) -> str:
    """What all of it comes to."""
    if not rows:
        return "Nothing was measured."
    shown = [r for r in rows if r.verdict == EQUIVALENT]
    worse = [r for r in rows if r.verdict == WORSE]
    open_rows = [r for r in rows if r.verdict == NOT_SHOWN]
    failed = [r for r in rows if r.status == "FAIL"]
    parts = []
    if worse:
        parts.append(f"EP is worse than the stronger baseline in {_names(worse)}.")
    if failed:
        parts.append(f"A check fails in {_names(failed)}.")
    parts.append(
        f"EP's accuracy is shown equivalent to that of the stronger backpropagation baseline, "
        f"within the margins stated, in {len(shown)} of {len(rows)} rows"
        + (f"; in {_names(open_rows)} these seeds show neither." if open_rows else ".")
    )
    mean = mean_gap(rows)
    if mean is not None:
        parts.append(f"Over the tasks, each counted once, the mean gap is {mean:+.2f} points.")
    return " ".join(parts)


def _real_gaps(rows: Sequence[RowReport]) -> str:
    real = [r for r in rows if r.difference_p is not None and r.difference_p < SIGNIFICANCE]
    low = [r for r in real if r.comparison.gap.mean < 0]
    high = [r for r in real if r.comparison.gap.mean > 0]
    parts = []
    if low:
        parts.append("EP is less accurate than the stronger baseline in " + _gaps(low) + ".")
    if high:
        parts.append("It is more accurate in " + _gaps(high) + ".")
    if not real:
        parts.append(
            f"In no row is the gap between EP and the stronger baseline significant (Holm-adjusted "
            f"p < {SIGNIFICANCE:g}), which is not to say that it is zero."
        )
    return " ".join(parts)


def _equivalence(rows: Sequence[RowReport]) -> str:
    shown = [r for r in rows if r.verdict == EQUIVALENT]
    rest = [r for r in rows if r.verdict != EQUIVALENT]
    parts = []
    if shown:
        names = ", ".join(f"{r.title} (±{r.margin:g} points)" for r in shown)
        parts.append(f"Equivalence within the stated margin is shown in {names}.")
    if rest:
        wide = ", ".join(
            f"{r.title} (±{r.margin:g}; these seeds show ±{r.comparison.smallest_margin:.2f})"
            if r.comparison.smallest_margin is not None
            else f"{r.title} (±{r.margin:g})"
            for r in rest
        )
        parts.append(f"Equivalence is not shown in {wide}.")
    return " ".join(parts)


def _sensitivity(study: Sensitivity) -> list[str]:
    lines = []
    for name, unit in (("beta", "β"), ("max_steps", "max_steps")):
        points = [p for p in study.points if p.setting == name]
        if not points:
            continue
        best, worst = (f(points, key=lambda p: p.accuracy.mean) for f in (max, min))
        good = [p.value for p in points if p.certified]
        certified = (
            f"certificates pass at {', '.join(f'{v:g}' for v in good)}"
            if good
            else "no certificate passes"
        )
        span = f"between {points[0].value:g} and {points[-1].value:g}"
        low = f"{worst.accuracy.mean:.2f} % at {worst.value:g}"
        high = f"{best.accuracy.mean:.2f} % at {best.value:g}"
        lines.append(
            f"Sensitivity to {unit} ({study.title}, the rest as tuned): {span} the accuracy goes "
            f"from {low} to {high}; {certified}."
        )
    return lines


def _certificates(rows: Sequence[RowReport]) -> str:
    made = sum(r.certificates.made for r in rows)
    passed = sum(r.certificates.passed for r in rows)
    least = min(rows, key=lambda r: r.certificates.cosine)
    bad = [r for r in rows if r.certificates.passed < r.certificates.made]
    text = (
        f"{passed} of {made} certificates passed, each at the row's own β, before, in the middle "
        f"of and after training; the smallest cosine with the exact gradient is "
        f"{least.certificates.cosine:.4f} ({least.title})."
    )
    return text + (f" Some failed in {_names(bad)}." if bad else "")


def _recurrence(rows: Sequence[RowReport]) -> str:
    used = [r for r in rows if -r.recurrence.cut.mean >= MATTERS]
    rest = [r for r in rows if r not in used]
    norms = [r.recurrence.norm for r in rows]
    parts = [f"The recurrence has a norm of {min(norms):.2f} to {max(norms):.2f} after training."]
    if used:
        cuts = ", ".join(f"{r.title} {r.recurrence.cut.mean:+.2f}" for r in used)
        parts.append(f"Cutting it changes the accuracy, in points, of {cuts}.")
    if rest:
        parts.append(
            f"It hardly matters (less than {MATTERS:g} points) in {_names(rest)}: there the task "
            "needs no recurrence."
        )
    return " ".join(parts)


def _implicit(rows: Sequence[RowReport]) -> str:
    gaps = [(r, r.comparisons["implicit"]) for r in rows if "implicit" in r.comparisons]
    if not gaps:
        return ""
    far = max(gaps, key=lambda pair: abs(pair[1].gap.mean))
    return (
        f"Against the exact gradient on the same network and settings, the largest gap is "
        f"{far[1].gap.mean:+.2f} points ({far[0].title}, {far[1].gap.n} seeds): what differs from "
        "the feed-forward baselines is mostly the network, not the gradient."
        if abs(far[1].gap.mean) < max(abs(r.comparison.gap.mean) for r in rows)
        else f"Against the exact gradient on the same network and settings, the largest gap is "
        f"{far[1].gap.mean:+.2f} points ({far[0].title}, {far[1].gap.n} seeds)."
    )


def _cost(rows: Sequence[RowReport]) -> str:
    ratios = sorted(rows, key=lambda r: r.ratio)
    return (
        f"Training takes {ratios[0].ratio:.1f} ({ratios[0].title}) to {ratios[-1].ratio:.1f} "
        f"({ratios[-1].title}) times as long as the stronger baseline's."
    )


def _gaps(rows: Sequence[RowReport]) -> str:
    return ", ".join(
        f"{r.title} ({r.comparison.gap.mean:+.2f} points, p {probability(r.difference_p)})"
        for r in rows
    )


def _names(rows: Sequence[RowReport]) -> str:
    return ", ".join(r.title for r in rows)
