"""Renders a report as JSON, Markdown and one self-contained page; nothing is computed here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toreqprop.atomic import write_atomically
from toreqprop.templates import fill
from toreqprop.verify.figures import draw
from toreqprop.verify.report import MARKS, Report, number

JSON, NOTEBOOK, PAGE = "verification.json", "verification_notebook.md", "verification.html"


def whole_folder(output: Path, level: str, *, whole: bool) -> Path:
    """Where the report of a level goes: one of some tracks has a folder of its own."""
    return output / "verification" / (level if whole else f"{level}-partial")


def write_reports(report: Report, folder: Path) -> list[Path]:
    """Write the three files, each whole or not at all."""
    texts = {
        JSON: json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n",
        NOTEBOOK: render("notebook.md.j2", report),
        PAGE: page(report),
    }
    for name, text in texts.items():
        write_atomically(folder / name, text)
    return [folder / name for name in texts]


def page(report: Report) -> str:
    """The report as one page that needs no other file."""
    # Reports that were written before there were bars have none.
    bars = any(track.get("nearest") for track in report["tracks"])
    return render("page.html.j2", report, drawn=draw(report), bars=bars)


def render(template: str, report: Report, **extra: Any) -> str:
    """One template filled with the report."""
    filters: dict[str, Callable[..., Any]] = {
        "mark": lambda status: MARKS[status],
        "number": number,
        "cell": cell,
        "pipes": lambda text: str(text).replace("|", "\\|"),
        "interval": lambda c: "" if c["low"] is None else f"{c['low']:.2f} to {c['high']:.2f}",
        "css": lambda status: status.replace(" ", "-"),
    }
    return fill("toreqprop.verify", template, filters, r=report, **extra)


def cell(value: Any, spec: str) -> str:
    """A cell in its column's format; a dash where nothing was measured."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    return format(int(value) if spec == "d" else value, spec)
