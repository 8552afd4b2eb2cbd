"""The study's tables and picture, from what its file holds; computes nothing new."""

from __future__ import annotations

from typing import Any

from toreqprop.bench.reward.policies import TITLES
from toreqprop.evidence.checked import check_lines as check_lines
from toreqprop.evidence.checked import interval
from toreqprop.plots.style import CYCLE, GREY, STYLES, finish, new_figure, plain_style

Report = dict[str, Any]
NAMES = {**TITLES, "random": "random actions"}


def table_lines(found: Report) -> list[str]:
    """One row for each task and network."""
    lines = [
        "| task | policy | parameters | environment steps | greedy return, 95 % interval "
        "| worst seed | seeds at the goal | second half of training | processor time |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found["summaries"]:
        trained = row["method"] != "random"
        size = f"{row['parameters']:,}" if trained else "–"
        steps = f"{row['environment_steps']:,}" if trained else "–"
        late = interval(row["second_half"], 1) if trained else "–"
        spent = f"{row['timing']['cpu_seconds']:.1f} s" if trained else "–"
        goal = f"{row['reached_goal']} of {row['seeds']} (≥ {found['goals'][row['task']]:g})"
        lines.append(
            f"| {row['task']} | {NAMES[row['method']]} | {size} | {steps} "
            f"| {interval(row['return'], 1)} | {row['worst_seed']:.1f} | {goal} | {late} "
            f"| {spent} |"
        )
    return lines


def gap_lines(found: Report) -> list[str]:
    """EP against each other network, paired by seed."""
    lines = [
        "| task | EP against | gap in returns, 95 % interval | margin | p, equivalence | p, "
        "difference | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in found["comparisons"]:
        lines.append(
            f"| {each['task']} | {NAMES[each['against']]} | {interval(each['gap'], 1, '+')} "
            f"| ±{each['margin']:.1f} | {_p(each['adjusted_equivalence_p'])} "
            f"| {_p(each['adjusted_p'])} | {each['verdict']} |"
        )
    return lines


def relaxation_lines(found: Report) -> list[str]:
    """What was recurrent about the looped networks, and how good their gradients were."""
    lines = [
        "| task | policy | least norm at first, at the end "
        "| contraction at first, amid, at the end | steps in the last update "
        "| smallest cosine at first, amid, at the end | certified "
        "| did not settle |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in found["summaries"]:
        if "norm" not in row:
            continue
        steps = " + ".join(f"{count:.1f} {phase}" for phase, count in row["steps"].items())
        lines.append(
            f"| {row['task']} | {NAMES[row['method']]} | {_listed(row['norm'], 3)} "
            f"| {_listed(row['contraction'], 2)} | {steps} | {_listed(row['cosine'], 4)} "
            f"| {row['certified']} of {row['seeds']} "
            f"| {row['unsettled']} of {row['relaxations']:,} |"
        )
    return lines


def search_lines(found: Report) -> list[str]:
    """Every trial of the search, and what it chose."""
    lines = [
        "| task | policy | rate | mean return, second half of training | greedy return | chosen |",
        "|---|---|---|---|---|---|",
    ]
    for task, rates in found["chosen"].items():
        for method, chosen in rates.items():
            for rate in found["grid"]:
                own = [
                    t for t in found["trials"]
                    if (t["task"], t["method"], t["rate"]) == (task, method, rate)
                ]  # fmt: skip
                late, end = (
                    ", ".join(f"{t[name]:.1f}" for t in own) for name in ("second_half", "greedy")
                )
                mark = "yes" if rate == chosen else ""
                lines.append(f"| {task} | {NAMES[method]} | {rate:g} | {late} | {end} | {mark} |")
    return lines


@plain_style()
def curves_figure(found: Report) -> Any:
    """Mean return of the episodes that end, against steps of the environments: the mean of the
    seeds, and the band between their quartiles."""
    import numpy as np

    tasks = list(found["goals"])
    figure, axes = new_figure(len(tasks), width=4.2 * len(tasks), height=3.2)
    for ax, task in zip(axes, tasks, strict=True):
        rows = [r for r in found["summaries"] if r["task"] == task and r["method"] != "random"]
        for number, row in enumerate(rows):
            runs = [
                r["curve"] for r in found["runs"]
                if (r["task"], r["method"]) == (task, row["method"])
            ]  # fmt: skip
            curves = np.array([_filled(curve["mean_return"]) for curve in runs], dtype=float)
            began = ~np.isnan(curves).any(0)
            steps, curves = np.array(runs[0]["steps"])[began], curves[:, began]
            colour = CYCLE[number % len(CYCLE)]
            low, high = np.quantile(curves, [0.25, 0.75], axis=0)
            ax.fill_between(steps, low, high, color=colour, alpha=0.15, lw=0)
            ax.plot(
                steps, curves.mean(0), color=colour, ls=STYLES[number], label=NAMES[row["method"]]
            )
        random = next(r for r in found["summaries"] if (r["task"], r["method"]) == (task, "random"))
        for level, label in (
            (random["return"]["mean"], "random actions"),
            (found["goals"][task], "goal"),
        ):
            ax.axhline(level, color=GREY, lw=0.8, ls=":")
            ax.text(0.99, level, label, color=GREY, ha="right", va="bottom", fontsize=7,
                    transform=ax.get_yaxis_transform())  # fmt: skip
        ax.set_title(task)
        finish(ax, "steps of environments", "mean return of finished episodes")
    return figure


def _filled(means: list[float | None]) -> list[float]:
    """A curve that keeps its last value while no episode ends, NaN before the first one has."""
    found, last = [], float("nan")
    for mean in means:
        last = last if mean is None else mean
        found.append(last)
    return found


def _listed(values: list[float], digits: int) -> str:
    return ", ".join(f"{value:.{digits}f}" for value in values)


def _p(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}"
