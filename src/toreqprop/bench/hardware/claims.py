"""What is claimed of learning in place, judged by paired intervals with Holm's correction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from toreqprop.evidence.statistics import MARGIN, SIGNIFICANCE, Summary, exceeds, holm, summarise

STATIC = (
    "stuck weights 20 %",
    "neuron offsets 0.5",
    "spread of weights 30 %",
    "up/down mismatch 30 %",
    "weights 2 bit",
    "weights 2 bit, spread 30 %",
)
"""Where learning in place has to beat every deployment."""

RIVALS = ("clean EP", "clean backprop", "aware backprop")

COMMON = ("weights 2 bit",)
"""Those that are the same on every chip. Training with the device model in its loop knows this chip
then, so whether learning in place beats it is one question, and whether it is level, no more than
`MARGIN` points below, another."""

WITHIN: dict[str, dict[str, float]] = {
    "digits": {"read noise, averaged 0.2": 1.0, "weights 4 bit, states 8 bit": 1.0},
    "mnist": {
        "read noise, averaged 0.2": 1.0,
        "weights 4 bit, states 8 bit": 1.0,
        "weights ternary": 2.0,
    },
}
"""Points by which learning in place may be worse than without the fault."""

POWER = 0.9
"""With which a claim is to be shown, where the number of chips is set by held-out differences."""

LEFT = 4
"""Claims by which Holm divides at most then: the three of a fault, and one that does not hold."""

Scores = Mapping[str, Mapping[int, float]]
"""By method, the accuracy of every seed under one fault."""


@dataclass(frozen=True)
class Claim:
    """``first − second`` is above ``bound`` points, over the seeds that both have.

    ``room`` is what the rival loses to the fault, seed by seed: more than that nobody wins over it
    who is not better than it without faults too.
    """

    text: str
    bound: float
    first: tuple[float, ...]
    second: tuple[float, ...]
    room: tuple[float, ...] = ()

    @property
    def gap(self) -> Summary | None:
        pairs = list(zip(self.first, self.second, strict=True))
        return summarise([a - b for a, b in pairs]) if pairs else None

    @property
    def p(self) -> float | None:
        return exceeds(self.first, self.second, self.bound)

    def verdict(self, adjusted: float | None) -> str:
        """PASS by interval and adjusted p-value, FAIL where the interval excludes the claim, else
        NOT SHOWN: the chips are too few to tell."""
        gap = self.gap
        if gap is None:
            return "NOT RUN"
        if gap.low is None or gap.high is None:
            return "NOT SHOWN"
        if gap.low > self.bound and adjusted is not None and adjusted < SIGNIFICANCE:
            return "PASS"
        return "FAIL" if gap.high < self.bound else "NOT SHOWN"


def chips_needed(expected: Summary) -> int | None:
    """How many chips show a difference of this mean and deviation, one sided, with `POWER`."""
    if not expected.sd or expected.mean <= 0:
        return None
    from statsmodels.stats.power import TTestPower

    found = TTestPower().solve_power(
        expected.mean / expected.sd, alpha=SIGNIFICANCE / LEFT, power=POWER, alternative="larger"
    )
    return math.ceil(found)


def claims(task: str, found: Mapping[str, Scores]) -> list[dict[str, Any]]:
    """Every claim with the difference, its 95 % interval, p-values and verdict, as plain data."""
    stated = []
    without = found.get("none", {})
    for fault in STATIC:
        own = found.get(fault, {})
        for rival in RIVALS:
            text = f"{fault}: in situ beats {rival} deployed"
            beaten = _paired(text, 0.0, own.get("in situ", {}), own.get(rival, {}))
            lost = _paired(text, 0.0, without.get(rival, {}), own.get(rival, {}))
            room = tuple(a - b for a, b in zip(lost.first, lost.second, strict=True))
            stated.append(replace(beaten, room=room))
        if fault in COMMON:
            text = f"{fault}: in situ at most {MARGIN:g} point(s) below {RIVALS[-1]} deployed"
            stated.append(_paired(text, -MARGIN, own.get("in situ", {}), own.get(RIVALS[-1], {})))
    clean = without.get("in situ", {})
    for fault, margin in WITHIN[task].items():
        text = f"{fault}: in situ within {margin:g} point(s) of no fault"
        stated.append(_paired(text, -margin, found.get(fault, {}).get("in situ", {}), clean))
    adjusted = holm([claim.p for claim in stated])
    return [
        {
            "claim": claim.text,
            "bound": claim.bound,
            "gap": None if claim.gap is None else asdict(claim.gap),
            "room": asdict(summarise(claim.room)) if claim.room else None,
            "p": claim.p,
            "adjusted_p": p,
            "verdict": claim.verdict(p),
        }
        for claim, p in zip(stated, adjusted, strict=True)
    ]


def _paired(
    text: str, bound: float, first: Mapping[int, float], second: Mapping[int, float]
) -> Claim:
    seeds = sorted(set(first) & set(second))
    return Claim(text, bound, tuple(first[s] for s in seeds), tuple(second[s] for s in seeds))
