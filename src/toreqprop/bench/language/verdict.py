"""What the study claims, judged over its seeds; what counting predicts as well never passes.

Bits per character of test text, paired by seed; fewer are better:

1. EP has learnt: its bits are below those of pairs of neighbours counted over all of the training
   text, by `LEARNT` bits at the least (one-sided t-test);
2. EP is within `MARGIN` of the implicit gradient: the whole 95 % interval of the mean gap is;
3. the networks are of equal size, to `SIZE`;
4. every certificate passes, at first, in the middle and at the end, at the network's own β.

How far EP is from the plain transformer is said and asks for nothing: it is another network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from toreqprop.bench.language.networks import EP, IMPLICIT, METHODS, PLAIN
from toreqprop.evidence.checked import check, mean, verdict
from toreqprop.evidence.statistics import SIGNIFICANCE, compare, exceeds, summarise

MARGIN = 0.05
LEARNT = 0.25
SIZE = 0.03
PAIRS = "two"

Run = dict[str, Any]


def judged_runs(counted: dict[str, Any], runs: Sequence[Run]) -> dict[str, Any]:
    """The runs, a summary of every method, comparisons, checks and the verdict."""
    comparisons = [_compared(runs, other) for other in (IMPLICIT, PLAIN) if _both(runs, other)]
    checks = _checks(counted, runs, comparisons)
    return {
        "counted": counted,
        "summaries": [_summary(runs, m) for m in METHODS if _of(runs, m)],
        "comparisons": comparisons,
        "checks": checks,
        "verdict": verdict(checks),
        "runs": list(runs),
    }


def _of(runs: Sequence[Run], method: str) -> list[Run]:
    return sorted((r for r in runs if r["method"] == method), key=lambda run: run["seed"])


def _scores(runs: Sequence[Run], method: str) -> list[float]:
    return [run["test_bits"] for run in _of(runs, method)]


def _both(runs: Sequence[Run], other: str) -> bool:
    return bool(_of(runs, EP)) and bool(_of(runs, other))


def _summary(runs: Sequence[Run], method: str) -> dict[str, Any]:
    own = _of(runs, method)
    scores = _scores(runs, method)
    found: dict[str, Any] = {
        "method": method,
        "seeds": len(own),
        "parameters": own[0]["parameters"],
        "tokens": own[0]["tokens"],
        "rate": own[0]["rate"],
        "bits": asdict(summarise(scores)),
        "worst_seed": max(scores),
        "timing": {"cpu_seconds": mean([run["timing"]["cpu_seconds"] for run in own])},
    }
    if "steps" in own[0]:
        found |= {
            "steps": {name: mean([run["steps"][name] for run in own]) for name in own[0]["steps"]},
            "unsettled": sum(run["unsettled"] for run in own),
            "relaxations": sum(run["relaxations"] for run in own),
            "norms": {n: mean([run["norms"][n] for run in own]) for n in own[0]["norms"]},
            "cut": {steps: mean([run["cut"][steps] for run in own]) for steps in own[0]["cut"]},
        }
    if own[0].get("certificates"):
        found["certificates"] = [
            _stage([run["certificates"][k] for run in own])
            for k in range(len(own[0]["certificates"]))
        ]
    return found


def _stage(proofs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The certificates of all seeds after the same number of updates."""
    worst = {
        name: min(proof[name] for proof in proofs)
        for name in ("cosine", "least_ratio", "uncorrected_cosine", "one_pass_cosine")
    }
    return {
        "update": proofs[0]["update"],
        "passed": sum(proof["ok"] for proof in proofs),
        **worst,
        "largest_ratio": max(proof["largest_ratio"] for proof in proofs),
        "contraction": mean([proof["contraction"] for proof in proofs]),
        "asymmetry": mean([proof["asymmetry"] for proof in proofs]),
        "steps": {n: mean([proof["steps"][n] for proof in proofs]) for n in proofs[0]["steps"]},
    }


def _compared(runs: Sequence[Run], other: str) -> dict[str, Any]:
    """EP minus another, paired by seed."""
    found = asdict(compare(_scores(runs, EP), _scores(runs, other), MARGIN))
    gap = found["gap"]
    return {"against": other, **found, "verdict": _said(gap["low"], gap["high"])}


def _said(low: float | None, high: float | None) -> str:
    """In words: bits, of which fewer are better."""
    if low is None or high is None:
        return "NOT SHOWN"
    if low > MARGIN:
        return "WORSE"
    if high < -MARGIN:
        return "BETTER"
    return "WITHIN" if low >= -MARGIN and high <= MARGIN else "NOT SHOWN"


def _checks(
    counted: dict[str, Any], runs: Sequence[Run], comparisons: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    own = _of(runs, EP)
    if not own:
        return []
    scores = _scores(runs, EP)
    p = exceeds([counted[PAIRS]] * len(scores), scores, by=LEARNT)
    found = [
        check(
            f"p-value of EP no more than {LEARNT:g} bits below pairs of neighbours, counted",
            p, SIGNIFICANCE, None if p is None else p < SIGNIFICANCE,
        )
    ]  # fmt: skip
    for each in comparisons:
        if each["against"] == IMPLICIT:
            low, high = each["gap"]["low"], each["gap"]["high"]
            farthest = None if low is None else max(abs(low), abs(high))
            shown = {"WITHIN": True, "WORSE": False, "BETTER": False, "NOT SHOWN": None}
            passed = shown[each["verdict"]]
            found.append(
                check("EP and its implicit twin: farther end of the gap's interval, bits",
                       farthest, MARGIN, passed)
            )  # fmt: skip
    sizes = [run["parameters"] for run in runs]
    spread = max(sizes) / min(sizes) - 1
    refused = sum(not proof["ok"] for run in own for proof in run["certificates"])
    uneven = len({run["tokens"] for run in runs}) - 1
    return [
        *found,
        check("largest over smallest network, minus one", spread, SIZE, spread <= SIZE),
        check("trainings of another number of characters", uneven, 0, uneven == 0),
        check("certificates refused", refused, 0, refused == 0),
    ]
