"""The figures of the page, drawn from the report as SVG text that needs no other file."""

from __future__ import annotations

from typing import Any

from toreqprop.plots import plain_style, svg
from toreqprop.plots.relaxation import draw_residual
from toreqprop.plots.style import BLUE, GREY, ORANGE, VERMILION
from toreqprop.plots.training import curves, draw_curve

COLOURS = {"backprop": ORANGE, "ep": BLUE}
NAMES = {"backprop": "backprop", "ep": "EP"}

_WIDE, _SQUARE = (4.6, 3.0), (3.6, 3.8)

Report = dict[str, Any]


def figures(report: Report) -> dict[str, Any]:
    """SVG by name: one gap plot, and per task learning curves, relaxation and confusion."""
    done = report["rows"]
    drawn: dict[str, Any] = {"gap": None, "tasks": {}, "lipschitz": None}
    with plain_style():
        if done:
            drawn["gap"] = svg("gap", (4.8, 1 + 0.4 * len(done)), lambda a: _gap(a, done))
        for task in done:
            name = task["name"]
            runs = _runs(report, name)
            drawn["tasks"][name] = _task_figures(name, task, runs)
        loose = [m for m in report["examples"] if m["run"]["control"] == "no-spectral-norm"]
        if loose:
            kept = [m for m in _runs(report, loose[0]["run"]["task"]) if m["run"]["model"] == "ep"]
            drawn["lipschitz"] = svg("lipschitz", _WIDE, lambda a: _lipschitz(a, kept, loose))
    return drawn


def _task_figures(name: str, task: dict[str, Any], runs: list[Report]) -> dict[str, Any]:
    return {
        "learning": svg(f"{name}-learning", _WIDE, lambda a: _learning(a, runs, task)),
        "relaxation": svg(f"{name}-relaxation", _WIDE, lambda a: _relaxation(a, runs, task)),
        "confusion": {
            "backprop": svg(f"{name}-backprop", _SQUARE, lambda a: _confusion(a, runs, "backprop")),
            "ep": svg(f"{name}-ep", _SQUARE, lambda a: _confusion(a, runs, "ep")),
        },
    }


def _gap(axes: Any, tasks: list[dict[str, Any]]) -> None:
    axes.axvline(0, color=GREY, lw=0.8)
    for row, task in enumerate(reversed(tasks)):
        gap, margin = task["comparison"]["gap"], task["margin"]
        axes.plot(
            [-margin, margin], [row, row], color=GREY, alpha=0.25, lw=9, solid_capstyle="butt"
        )
        if gap["low"] is not None:
            axes.plot([gap["low"], gap["high"]], [row, row], color=COLOURS["ep"], lw=2)
        axes.plot([gap["mean"]], [row], "o", color=COLOURS["ep"], ms=6)
    axes.set_yticks(range(len(tasks)), [task["title"] for task in reversed(tasks)])
    axes.set_ylim(-0.6, len(tasks) - 0.4)
    axes.set_xlabel("EP minus the stronger baseline, points (mean, 95 % interval; grey: margin)")


def _learning(axes: Any, runs: list[Report], task: dict[str, Any]) -> None:
    lowest = 100.0
    for model, colour in COLOURS.items():
        for index, run in enumerate(m for m in runs if m["run"]["model"] == model):
            found = curves(run["epochs"])
            label = NAMES[model] if index == 0 else None
            style = "-" if model == "ep" else "--"
            draw_curve(
                axes, found["epochs"], found["accuracy"], colour=colour, label=label, style=style
            )
            lowest = min(lowest, *found["accuracy"])
    if lowest <= task["chance"] + 5:
        axes.axhline(task["chance"], color=GREY, lw=0.8, ls=":", label="chance")
    axes.set_xlabel("epoch")
    axes.set_ylabel("test accuracy (%)")
    axes.legend(loc="lower right")


def _relaxation(axes: Any, runs: list[Report], task: dict[str, Any]) -> None:
    for index, run in enumerate(m for m in runs if m.get("curves")):
        for phase in ("free", "nudged"):
            label = f"{phase} phase" if index == 0 else None
            draw_residual(axes, run["curves"][phase]["worst"], phase, label=label)
    settings = task["settings"]
    # Reports made before it was searched for have it among the options of the row.
    tolerance = settings["ep"].get("tol") or dict(settings["options"])["tol"]
    axes.axhline(tolerance, color=GREY, lw=0.8, ls="--", label="tolerance in training")
    axes.set_xlabel("relaxation step")
    axes.set_ylabel("worst relative residual")
    axes.legend(loc="upper right")


def _confusion(axes: Any, runs: list[Report], model: str) -> None:
    chosen = [m["confusion"] for m in runs if m["run"]["model"] == model]
    size = len(chosen[0])
    counts = [[sum(c[i][j] for c in chosen) for j in range(size)] for i in range(size)]
    shares = [[v / max(1, sum(row)) for v in row] for row in counts]
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for i, row in enumerate(shares):
        for j, share in enumerate(row):
            if counts[i][j]:
                text = f"{100 * share:.0f}" if share >= 0.005 else "·"
                colour = "white" if share > 0.5 else "#1f2937"
                axes.text(j, i, text, ha="center", va="center", fontsize=7, color=colour)
    axes.set_xticks(range(size))
    axes.set_yticks(range(size))
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    axes.set_title(f"{NAMES[model]}, % of each true class", fontsize=9)


def _lipschitz(axes: Any, kept: list[Report], loose: list[Report]) -> None:
    arms = ((loose, VERMILION, "--", "without"), (kept, COLOURS["ep"], "-", "with"))
    for runs, colour, style, word in arms:
        for index, run in enumerate(runs):
            label = f"{word} spectral norm" if index == 0 else None
            epochs = list(range(1, len(run["norms"]) + 1))
            draw_curve(axes, epochs, run["norms"], colour=colour, label=label, style=style)
    axes.axhline(1.0, color=GREY, lw=0.8, ls=":")
    axes.set_xlabel("epoch")
    axes.set_ylabel("norm of the map")
    axes.legend(loc="best")


def _runs(report: Report, task: str) -> list[Report]:
    found = [m for m in report["examples"] if m["run"]["control"] is None]
    return [m for m in found if m["run"]["task"] == task and m["run"]["variant"] is None]
