"""What must hold of a row, and the rule that turns measurements into a verdict.

Checks, on unrounded means over the seeds:

1. EP and the stronger baseline are above chance: the p-value of "no better than always naming the
   most frequent class", adjusted by Holm over the rows, is below 0.05;
2. the mean accuracy of both is at least the row's (of the baseline too: to be as good as a weak
   one would prove nothing);
3. every certificate of EP's gradient passed, at its own β and tolerance, before, in the middle of
   and after training, for every seed;
4. the norm of EP's map stayed below one;
5. on control tasks, the mean return of EP's cloned policy reaches its bound.

The verdict on the gap between EP and the stronger baseline, p-values adjusted by Holm over rows:

* EQUIVALENT: two one-sided tests find it within the row's margin;
* WORSE, BETTER: they do not, and a paired t-test finds a difference;
* NOT SHOWN: neither; more seeds would tell.

A row's status is FAIL where a check fails or the verdict is WORSE, else PASS where it is
EQUIVALENT or BETTER, else NOT SHOWN.
"""

from __future__ import annotations

from dataclasses import dataclass

from toreqprop.bench.rows import ROWS


@dataclass(frozen=True)
class Bounds:
    """Least accuracy in percent and least gap in points of a row, for those who train it too."""

    accuracy: float
    gap: float


BOUNDS: dict[str, Bounds] = {row.name: Bounds(row.accuracy, -row.margin) for row in ROWS}


@dataclass(frozen=True)
class Check:
    """One claim with what was measured and the bound it has to meet."""

    claim: str
    measured: float | None
    bound: float
    passed: bool


def at_least(claim: str, measured: float | None, bound: float) -> Check:
    """``measured ≥ bound``; what was not measured does not pass."""
    return Check(claim, measured, bound, measured is not None and measured >= bound)


def below(claim: str, measured: float | None, bound: float) -> Check:
    """``measured < bound``."""
    return Check(claim, measured, bound, measured is not None and measured < bound)


def status(checks: list[Check]) -> str:
    """PASS if every check passed, and there was one."""
    return "PASS" if checks and all(check.passed for check in checks) else "FAIL"
