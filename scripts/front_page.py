"""What the site's first page shows at a glance, each figure read from results/*.json."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from toreqprop.tasks import TASKS

Report = dict[str, Any]
Load = Callable[[str], Report]


def tasks_table(load: Load, benchmark: str) -> list[str]:
    """The rows of the five tasks themselves: accuracies, gap with its interval, verdict."""
    report = load(benchmark)
    lines = [
        "| Task | Seeds | Stronger baseline | EP | Gap (95 % interval) | Verdict |",
        "|---|---|---|---|---|---|",
    ]
    lines += [" | ".join(["", *row, ""]).strip() for row in _task_rows(report)]
    return [
        *lines, "",
        "Mean test accuracy on sets no seed trains on; the gap is EP minus the stronger of two "
        "feed-forward baselines, in points, with the interval of the paired difference. "
        f"[All rows, tests and controls](../results/{benchmark.removesuffix('json')}md).",
    ]  # fmt: skip


def _task_rows(report: Report) -> Iterator[tuple[str, ...]]:
    """Title, seeds, the two accuracies, the gap and the verdict of each task."""
    for row in report["rows"]:
        if row["name"] not in TASKS:
            continue
        scores = [f"{row['arms'][a]['accuracy']['mean']:.2f} %" for a in (row["against"], "ep")]
        gap = row["comparison"]["gap"]
        interval = f"{signed(gap['mean'])} ({signed(gap['low'])} … {signed(gap['high'])})"
        verdict = f"{row['verdict'].lower()}, ±{row['margin']:g}"
        yield row["title"], str(len(row["seeds"])), *scores, interval, verdict


def signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")


SHOWN = (
    ("ideal", "without faults"),
    ("deployed", "faults, trained as drawn"),
    ("in_place", "faults, trained in place"),
    ("frozen", "in place, first crossbar frozen"),
)
"""Rows of the picture of broken circuits, and what they say."""

LEFT, RIGHT, ROW = 20, 400, 46
"""Of that picture: where the axis begins and ends, and the height of a row."""


def circuits_picture(load: Load) -> list[str]:
    """Means and deviations of accuracy, as a picture in the colours of the page, and in words."""
    found = load("circuits/in_situ.json")
    rows = [(name, label, found["summary"][name]) for name, label in SHOWN]
    low = min(figures["mean"] - figures["std"] for *_, figures in rows)
    floor = int(100 * low) // 5 * 5
    picture = [
        f'<svg class="front-circuits" viewBox="0 0 {RIGHT + LEFT} {ROW * len(rows) + 28}" '
        'role="img" aria-label="Accuracy of circuits with faults">'
    ]
    base = ROW * len(rows)
    for tick in range(floor, 101, 5):
        x = _place(tick / 100, floor)
        picture.append(
            f'<line class="grid" x1="{x:.1f}" y1="6" x2="{x:.1f}" y2="{base + 6}"/>'
            f'<text class="tick" x="{x:.1f}" y="{base + 22}">{tick} %</text>'
        )
    for row, (name, label, figures) in enumerate(rows):
        y, mean, spread = ROW * row + 32, figures["mean"], figures["std"]
        one, two = (_place(v, floor) for v in (mean - spread, min(1.0, mean + spread)))
        picture.append(
            f'<g class="{name}"><text class="name" x="{LEFT}" y="{y - 13}">{label}</text>'
            f'<line x1="{one:.1f}" y1="{y}" x2="{two:.1f}" y2="{y}"/>'
            f'<circle cx="{_place(mean, floor):.1f}" cy="{y}" r="6"/>'
            f'<text class="share" x="{RIGHT}" y="{y - 13}">{100 * mean:.1f} %</text></g>'
        )
    picture.append("</svg>")
    # The summary is of the strong mismatch itself; other runs halve or double it.
    count = sum(run["spread"] == 1 for run in found["runs"])
    deployed, place = (100 * found["summary"][k]["mean"] for k in ("deployed", "in_place"))
    return [
        *picture, "",
        f"Resistive networks whose components deviate strongly: trained as drawn and deployed "
        f"{deployed:.1f} %, trained in place {place:.1f} %, over {count} circuits. EP "
        "measures the circuit that is there, faults and all. [Circuits](circuits.md).",
    ]  # fmt: skip


def _place(share: float, floor: int) -> float:
    return LEFT + (100 * share - floor) / (100 - floor) * (RIGHT - LEFT)


def play_table(records: dict[str, Report]) -> list[str]:
    """What the networks of `toreqprop play` do, as their checkpoints record it."""
    digits, hidden, maze = (records[name] for name in ("digits", "hidden", "maze"))
    solved = ", ".join(
        f"{share:g} % of {side}×{side}"
        for side, share in zip(maze["sides"], maze["exact"], strict=True)
    )
    return [
        "| | names digits | sees what is covered |",
        "|---|---|---|",
        *(
            f"| {name} | {one} | {two} |"
            for name, one, two in (
                ("test pictures", digits["test_samples"], hidden["test_samples"]),
                (
                    "result",
                    f"{100 * digits['test_accuracy']:.1f} % right (chance "
                    f"{100 * digits['chance']:.1f} %)",
                    f"error of the covered half {hidden['hidden_error']:.3f} of the ink; "
                    f"{hidden['hidden_error_first_step']:.3f} after one step, "
                    f"{hidden['hidden_error_mean_picture']:.3f} by the mean picture",
                ),
                *(
                    (label, *(read(r) for r in (digits, hidden)))
                    for label, read in (
                        ("neurons", lambda r: str(r["recipe"]["hidden"])),
                        ("norm of the recurrent weights", lambda r: f"{r['lipschitz']:.3f}"),
                        ("most steps to settle", lambda r: f"{r['steps']} (to {r['tol']:g})"),
                        (
                            "smallest cosine with the exact gradient",
                            lambda r: f"{r['certificate']['worst_cosine']:.6f}",
                        ),
                    )
                ),
            )
        ),
        "",
        f"The map of the maze has {maze['parameters']} numbers and was trained on mazes of "
        f"{maze['trained_on']}×{maze['trained_on']} cells alone. With every open cell right it "
        f"solves {solved} test mazes, {maze['test_samples']} of each; the certificate of its "
        f"gradient says: {maze['certificate']['verdict']} (smallest cosine "
        f"{maze['certificate']['worst_cosine']:.3f}; a map has no spectral bound).",
        "",
        f"Trained by `{digits['command']}`. What was tried on validation pictures is in "
        "[results/play/search.jsonl](../results/play/search.jsonl).",
    ]
