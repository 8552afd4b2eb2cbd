"""Checks of a study as plain data: what was claimed, measured and asked for, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_WORDS = {True: "passed", False: "**failed**", None: "not shown"}


def check(claim: str, measured: float | None, bound: float, passed: bool | None) -> dict[str, Any]:
    """One check; ``passed`` is None where the seeds are too few to tell."""
    return {"claim": claim, "measured": measured, "bound": bound, "passed": passed}


def verdict(checks: Sequence[dict[str, Any]]) -> str:
    """FAIL where one failed, PASS where there are some and all passed, else NOT SHOWN."""
    if any(each["passed"] is False for each in checks):
        return "FAIL"
    shown = checks and all(each["passed"] for each in checks)
    return "PASS" if shown else "NOT SHOWN"


def check_lines(found: dict[str, Any]) -> list[str]:
    """A Markdown table of a study's checks, its verdict and its command."""
    lines = ["| check | measured | bound | |", "|---|---|---|---|"]
    for each in found["checks"]:
        measured = "–" if each["measured"] is None else f"{each['measured']:.3g}"
        passed = _WORDS[each["passed"]]
        lines.append(f"| {each['claim']} | {measured} | {each['bound']:g} | {passed} |")
    return [*lines, "", f"**{found['verdict']}**, by `{found['command']}`."]


def interval(summary: dict[str, Any], digits: int, sign: str = "") -> str:
    """``1.25 [1.20, 1.30]``: a mean and, where there are several scores, its interval."""
    mean, *ends = (
        "" if summary[name] is None else f"{summary[name]:{sign}.{digits}f}"
        for name in ("mean", "low", "high")
    )
    return f"{mean} [{', '.join(ends)}]" if all(ends) else mean


def mean(values: Sequence[float]) -> float:
    """Of at least one number."""
    return sum(values) / len(values)
