"""The figures of the page, drawn from the report as SVG text that needs no other file."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

COLOURS = {"backprop": "#8a6d3b", "ep": "#1f6feb"}
NAMES = {"backprop": "backprop", "ep": "EP (LoopedMLP, SN)"}
_GREY = "#6b7280"

_WIDE, _SQUARE = (4.6, 3.0), (3.6, 3.8)

Report = dict[str, Any]


def figures(report: Report) -> dict[str, Any]:
    """SVG by name: one gap plot, and per task learning curves, relaxation and confusion."""
    done = [task for task in report["tasks"] if task["status"] != "NOT RUN"]
    drawn: dict[str, Any] = {"gap": None, "tasks": {}, "lipschitz": None}
    with plain_style():
        if done:
            drawn["gap"] = svg("gap", (4.8, 1 + 0.4 * len(done)), lambda a: _gap(a, done))
        for task in done:
            runs = _runs(report, task["task"])
            name = task["name"]
            drawn["tasks"][name] = _task_figures(name, task, runs)
        loose = [m for m in report["runs"] if m["run"]["control"] == "no-spectral-norm"]
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
    margin = tasks[0]["comparison"]["margin"]
    axes.axvspan(-margin, margin, color=_GREY, alpha=0.12, lw=0, label=f"±{margin:g} point")
    axes.axvline(0, color=_GREY, lw=0.8)
    for row, task in enumerate(reversed(tasks)):
        gap = task["comparison"]["gap"]
        if gap["low"] is not None:
            axes.plot([gap["low"], gap["high"]], [row, row], color=COLOURS["ep"], lw=2)
        axes.plot([gap["mean"]], [row], "o", color=COLOURS["ep"], ms=6)
    axes.set_yticks(range(len(tasks)), [task["title"] for task in reversed(tasks)])
    axes.set_ylim(-0.6, len(tasks) - 0.4)
    axes.set_xlabel("EP minus backprop, points (mean, 95 % interval)")


def _learning(axes: Any, runs: list[Report], task: dict[str, Any]) -> None:
    lowest = 100.0
    for model, colour in COLOURS.items():
        for index, run in enumerate(m for m in runs if m["run"]["model"] == model):
            epochs = [row["epoch"] for row in run["epochs"]]
            scores = [100 * row["accuracy"] for row in run["epochs"]]
            lowest = min(lowest, *scores)
            label = NAMES[model] if index == 0 else None
            single = "o" if len(epochs) == 1 else None
            axes.plot(epochs, scores, color=colour, lw=1.3, alpha=0.8, label=label, marker=single)
    if lowest <= task["chance"] + 5:
        axes.axhline(task["chance"], color=_GREY, lw=0.8, ls="--", label="chance")
    axes.set_xlabel("epoch")
    axes.set_ylabel("test accuracy (%)")
    axes.legend(loc="lower right")


def _relaxation(axes: Any, runs: list[Report], task: dict[str, Any]) -> None:
    colours = {"free": COLOURS["ep"], "nudged": "#b3417a"}
    for index, run in enumerate(m for m in runs if m["curves"]):
        for phase, colour in colours.items():
            worst = run["curves"][phase]["worst"]
            label = f"{phase} phase" if index == 0 else None
            steps = range(1, len(worst) + 1)
            axes.semilogy(steps, worst, color=colour, lw=1.3, alpha=0.8, label=label)
    axes.axhline(
        task["relaxation"]["tolerance"], color=_GREY, lw=0.8, ls="--", label="tolerance in training"
    )
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
    for runs, colour, label in ((loose, "#c2410c", "without"), (kept, COLOURS["ep"], "with")):
        for index, run in enumerate(runs):
            values = [row["lipschitz"] for row in run["epochs"]]
            name = f"{label} spectral norm" if index == 0 else None
            epochs = range(1, len(values) + 1)
            single = "o" if len(values) == 1 else None
            axes.plot(epochs, values, color=colour, lw=1.3, alpha=0.8, label=name, marker=single)
    axes.axhline(1.0, color=_GREY, lw=0.8, ls="--")
    axes.set_xlabel("epoch")
    axes.set_ylabel("largest Lipschitz constant")
    axes.legend(loc="best")


def _runs(report: Report, task: str) -> list[Report]:
    return [m for m in report["runs"] if m["run"]["task"] == task and m["run"]["control"] is None]


def svg(name: str, size: tuple[float, float], draw: Callable[[Any], None]) -> str:
    """Draw on fresh axes; the text holds no date, and ids that are this figure's own."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"svg.hashsalt": name}):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    for reference in ('id="', 'href="#', "url(#"):
        svg = svg.replace(reference, f"{reference}{name}-")
    # Without a size of its own the figure takes the width the page gives it.
    head, rest = svg.split(">", 1)
    return re.sub(r' (width|height)="[^"]*"', "", head) + ">" + rest


@contextmanager
def plain_style() -> Iterator[None]:
    import matplotlib as mpl

    with mpl.rc_context(
        {
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "legend.frameon": False,
            "legend.fontsize": 8,
            "svg.fonttype": "none",
            "figure.facecolor": "none",
            "savefig.transparent": True,
        }
    ):
        yield
