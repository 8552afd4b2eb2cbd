"""Draws the figures of a report as SVG text that needs no other file."""

from __future__ import annotations

from functools import partial
from typing import Any

from toreqprop.plots import plain_style, svg
from toreqprop.plots.style import CYCLE, GREY, STYLES
from toreqprop.verify.report import Report


def draw(report: Report) -> dict[int, list[str]]:
    """SVG texts by track."""
    with plain_style():
        return {
            track["number"]: [
                svg(f"track-{track['number']}-{k}", (5.2, 3.3), partial(_draw, figure))
                for k, figure in enumerate(track["figures"])
            ]
            for track in report["tracks"]
        }


def _draw(figure: dict[str, Any], axes: Any) -> None:
    if figure["bars"]:
        _bars(axes, figure)
    else:
        _curves(axes, figure)
    for k, (label, level) in enumerate(figure["lines"].items()):
        axes.axhline(level, color=GREY, lw=0.9, ls=("--", ":", "-.")[k % 3], label=label)
    if figure["log_x"]:
        axes.set_xscale("log")
    if figure["log_y"]:
        axes.set_yscale("log")
    axes.set_xlabel(figure["x_label"])
    axes.set_ylabel(figure["y_label"])
    axes.legend(loc="best")


def _curves(axes: Any, figure: dict[str, Any]) -> None:
    for k, series in enumerate(figure["series"]):
        marker = "o" if len(series["x"]) <= 12 else None
        colour, style = CYCLE[k % len(CYCLE)], STYLES[k % len(STYLES)]
        axes.plot(
            series["x"], series["y"], ls=style, color=colour, lw=1.5, marker=marker, ms=4,
            label=series["label"],
        )  # fmt: skip


def _bars(axes: Any, figure: dict[str, Any]) -> None:
    groups = figure["series"]
    names = groups[0]["x"]
    width = 0.8 / len(names)
    for k, name in enumerate(names):
        places = [g + (k - (len(names) - 1) / 2) * width for g in range(len(groups))]
        heights = [group["y"][k] for group in groups]
        bars = axes.bar(places, heights, 0.92 * width, color=CYCLE[k % len(CYCLE)], label=name)
        axes.bar_label(bars, fmt="%.1f", padding=2, fontsize=8)
    axes.set_xticks(range(len(groups)), [group["label"] for group in groups])
    axes.set_ylim(0, 118)
    axes.set_yticks(range(0, 101, 20))
    if len(groups) == 1:
        axes.set_xlim(-1, 1)
