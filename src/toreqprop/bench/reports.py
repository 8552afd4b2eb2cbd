"""Renders the benchmark's measurements as Markdown and as one self-contained page.

Nothing is computed here: templates only format what `BenchmarkReport.as_dict` gives.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toreqprop.atomic import write_atomically
from toreqprop.bench.figures import figures
from toreqprop.templates import fill

JSON, MARKDOWN, STATISTICS, PAGE = (
    "benchmark.json",
    "benchmark.md",
    "statistical_report.md",
    "benchmark.html",
)

_MARKS = {
    "PASS": "✅ PASS",
    "FAIL": "❌ FAIL",
    "NOT RUN": "⏸ NOT RUN",
    "NOT SHOWN": "⚪ not shown",
    "REPORTED": "ℹ️ reported",
    "EQUIVALENT": "equivalent",
    "WORSE": "**worse**",
    "BETTER": "better",
}

ARMS = {
    "ep": "EP",
    "backprop": "backprop, same parameters",
    "shallow": "backprop, same depth",
    "implicit": "same network, implicit gradient",
}
"""What the arms of a row are called."""


def write_reports(report: dict[str, Any], folder: Path) -> list[Path]:
    """Write the four files of a report, each whole or not at all."""
    report = json.loads(json.dumps(report, allow_nan=False))  # as whoever renders it later reads it
    texts = {
        JSON: json.dumps(report, indent=1, allow_nan=False) + "\n",
        MARKDOWN: render("benchmark.md.j2", report),
        STATISTICS: render("statistical_report.md.j2", report),
        PAGE: page(report),
    }
    for name, text in texts.items():
        write_atomically(folder / name, text)
    return [folder / name for name in texts]


def page(report: dict[str, Any]) -> str:
    """The report as one page that needs no other file."""
    return render("benchmark.html.j2", report, figures=figures(report))


def render(template: str, report: dict[str, Any], **extra: Any) -> str:
    """One template filled with the report."""
    filters: dict[str, Callable[..., Any]] = {
        "percent": percent,
        "figure": figure,
        "signed": signed,
        "probability": probability,
        "interval": interval,
        "residual": lambda value: "not finite" if value is None else f"{value:.1e}",
        "options": dict,
        "arm": lambda name: ARMS[name],
        "mark": lambda status: _MARKS.get(status, status),
        "minutes": lambda seconds: f"{seconds // 60:.0f} min {seconds % 60:02.0f} s",
    }
    return fill("toreqprop.bench", template, filters, r=report, **extra)


def percent(summary: dict[str, Any]) -> str:
    """``97.04% ± 0.35%``."""
    if summary["sd"] is None:
        return f"{summary['mean']:.2f}%"
    return f"{summary['mean']:.2f}% ± {summary['sd']:.2f}%"


def figure(value: float | None, digits: int = 2) -> str:
    """A number, or a dash where it is undefined."""
    return "–" if value is None else f"{value:.{digits}f}"


def signed(value: float | None, digits: int = 2) -> str:
    """A number with its sign; nothing is called minus zero."""
    if value is None:
        return "–"
    text = f"{value:+.{digits}f}"
    return text if float(text) else f"{0:.{digits}f}"


def probability(value: float | None) -> str:
    """A p-value."""
    if value is None:
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def interval(summary: dict[str, Any]) -> str:
    """``[-0.90, +0.10]``."""
    if summary["low"] is None:
        return "–"
    return f"[{signed(summary['low'])}, {signed(summary['high'])}]"
