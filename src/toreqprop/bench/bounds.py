"""What must hold on each task, and the rule that turns measurements into PASS or FAIL.

A task passes if all of its checks hold, on unrounded means over the seeds:

1. both models are above chance: the lower end of the 95 % interval of their accuracy exceeds the
   accuracy of always predicting the most frequent class of the test labels;
2. the mean accuracy of both models is at least the task's bound (of backpropagation too: to be
   as good as a weak baseline would prove nothing);
3. the mean gap, EP minus backpropagation, is at least the task's bound;
4. the Lipschitz constant of EP's fixed-point map stayed below one at every training step;
5. on control tasks, the mean return of EP's cloned policy reaches its bound.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bounds:
    """Least accuracy and gap in percentage points; least return, absolute or below the expert's."""

    accuracy: float
    gap: float
    policy_return: float | None = None
    below_expert: float | None = None


BOUNDS: dict[str, Bounds] = {
    "digits": Bounds(97.2, -0.5),
    "mnist": Bounds(94.6, -0.5),
    "fashion": Bounds(84.0, 0.0),
    "cartpole": Bounds(99.3, -0.5, policy_return=475.0),
    "acrobot": Bounds(97.8, -0.5, below_expert=10.0),
    "mnist-layered": Bounds(94.6, -0.2),
    "digits-fast": Bounds(97.2, -0.5),
    "mnist-fast": Bounds(94.6, -0.5),
    "mnist-full": Bounds(98.0, -0.3),
    "mnist-layered-full": Bounds(98.3, -0.3),
    "fashion-full": Bounds(89.0, -0.3),
}


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


def above(claim: str, measured: float | None, bound: float) -> Check:
    """``measured > bound``."""
    return Check(claim, measured, bound, measured is not None and measured > bound)


def below(claim: str, measured: float | None, bound: float) -> Check:
    """``measured < bound``."""
    return Check(claim, measured, bound, measured is not None and measured < bound)


def status(checks: list[Check]) -> str:
    """PASS if every check passed, and there was one."""
    return "PASS" if checks and all(check.passed for check in checks) else "FAIL"
