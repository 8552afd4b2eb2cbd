"""What the studies of chips found, as tables and pages; nothing is measured or decided here."""

from __future__ import annotations

import io
import json
from collections import Counter
from html import escape
from pathlib import Path
from typing import Any

from toreqprop.atomic import write_atomically

Report = dict[str, Any]


def score(figures: Report | None) -> str:
    """``95.1 ± 0.6``."""
    if figures is None:
        return "–"
    sd = "" if figures["sd"] is None else f" ± {figures['sd']:.1f}"
    return f"{figures['mean']:.1f}{sd}"


def gap_text(gap: Report | None) -> str:
    """``+2.3 (+1.1 to +3.5), n = 10``."""
    if gap is None:
        return "–"
    span = "" if gap["low"] is None else f" ({gap['low']:+.2f} to {gap['high']:+.2f})"
    return f"{gap['mean']:+.2f}{span}, n = {gap['n']}"


def table_lines(found: Report) -> list[str]:
    """Accuracies in Markdown, a row for each fault."""
    methods = found["methods"]
    lines = [
        "| fault | " + " | ".join(methods) + " | chips |",
        "|---|" + "---|" * (len(methods) + 1),
    ]
    for row in found["rows"]:
        if not row["scores"]:
            continue
        cells = [score(row["scores"].get(m)) for m in methods]
        counts = sorted({s["n"] for s in row["scores"].values()}, reverse=True)
        lines.append(
            f"| {row['fault']} | " + " | ".join(cells) + f" | {', '.join(map(str, counts))} |"
        )
    return lines


def claim_lines(found: Report) -> list[str]:
    """Claims in Markdown."""
    lines = [
        "| claim | difference, points | the rival lost | adjusted p | verdict |",
        "|---|---|---|---|---|",
    ]
    for claim in found["claims"]:
        p = "–" if claim["adjusted_p"] is None else f"{claim['adjusted_p']:.2g}"
        words = claim["claim"], gap_text(claim["gap"]), gap_text(claim["room"]), p
        lines.append("| " + " | ".join(words) + f" | {claim['verdict']} |")
    return lines


def settings_lines(found: Report) -> list[str]:
    """What the search chose, and what learning in place took, in Markdown."""
    methods = [m for m in found["methods"] if m != "frozen"]
    lines = [
        "| fault | " + " | ".join(methods) + " | β in situ | norm between layers | cosine with "
        "backprop |",
        "|---|" + "---|" * (len(methods) + 3),
    ]
    for row in found["rows"]:
        if not row["claimed"] or not row["scores"]:
            continue
        used = [row["settings"].get(m) for m in methods]
        cells = ["–" if u is None else _tuned(u, found["recipe"]) for u in used]
        beta = "–" if row["beta"] is None else f"{row['beta']:.2g}"
        norm = "–" if row["norm"] is None else f"{row['norm']:.2f}"
        cosine = "–" if row.get("cosine") is None else f"{row['cosine']:.3f}"
        words = [row["fault"], *cells, beta, norm, cosine]
        lines.append("| " + " | ".join(words) + " |")
    return lines


def _tuned(settings: list[float], recipe: Report) -> str:
    """Rate and epochs, and the feedback where it is not the recipe's."""
    usual = recipe.get("feedback", 1)
    weaker = [f"feedback {value:g}" for value in settings[2:] if value != usual]
    return ", ".join([f"{value:g}" for value in settings[:2]] + weaker)


def second_lines(found: Report) -> list[str]:
    """The second search in Markdown: held-out accuracies by settings, seed by seed against those
    that the first search found."""
    later = {(g["fault"], g["method"]): tuned(g["first"]) for g in found.get("third", ())}
    return _gain_lines(found, found["second"], later)


def third_lines(found: Report) -> list[str]:
    """The third search in Markdown: means of its first round, then the challenger of every method
    against what was in force, on fresh seeds."""
    recipe = found["recipe"]
    by_method: dict[str, dict[str, float]] = {}
    for heat in found["heats"]:
        by_method.setdefault(heat["method"], {})[_tuned(tuned(heat), recipe)] = heat["mean"]
    names = sorted({name for means in by_method.values() for name in means})
    lines = ["| method | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for method, means in by_method.items():
        cells = [f"{means[name]:.2f}" if name in means else "–" for name in names]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    seeds = ", ".join(sorted({str(heat["seeds"]) for heat in found["heats"]}))
    return [
        *lines, "", f"Held-out accuracy, means over {seeds} seeds.",
        "", *_gain_lines(found, found["third"], {}),
    ]  # fmt: skip


def power_lines(found: Report) -> list[str]:
    """What held-out data say of the differences to be tested, and the chips they take."""
    lines = ["| fault | rival | held-out difference, points | deviation | chips asked |"]
    lines.append("|---|---|---|---|---|")
    for p in found["power"]:
        words = p["fault"], p["rival"], gap_text(p["gap"]), f"{p['gap']['sd']:.2f}"
        lines.append("| " + " | ".join(words) + f" | {p['chips'] or '–'} |")
    return lines


def _gain_lines(
    found: Report, gains: list[Report], later: dict[tuple[str, str], list[float]]
) -> list[str]:
    """What settings gained over others; ``later``, what was in force before the next search."""
    lines = [
        "| fault | method | from | to | held out | gain | taken |",
        "|---|---|---|---|---|---|---|",
    ]
    rows, recipe = {row["fault"]: row["settings"] for row in found["rows"]}, found["recipe"]
    for each in gains:
        key = fault, method = each["fault"], each["method"]
        start, end = tuned(each["first"]), tuned(each["tried"])
        taken = later.get(key, rows[fault].get(method)) == end
        words = fault, method, _tuned(start, recipe), _tuned(end, recipe)
        held = "{:.2f}, {:.2f}".format(*each["held_out"])
        gain = gap_text(each["gain"])
        lines.append(f"| {' | '.join(words)} | {held} | {gain} | {'yes' if taken else 'no'} |")
    return lines


TUNED = "learning_rate", "epochs", "feedback"
"""Settings that a search may change."""


def tuned(recipe: Report) -> list[float]:
    """Those of a recipe."""
    return [recipe[name] for name in TUNED]


def rounding_lines(found: Report) -> list[str]:
    """Held-out accuracy of one seed as it is, and after changes of nothing but last bits."""
    lines = ["| fault | method | as it is | last bits changed |", "|---|---|---|---|"]
    by_cell: dict[tuple[str, str], dict[str, list[float]]] = {}
    for t in found["trials"]:
        own = by_cell.setdefault((t["fault"], t["method"]), {})
        own.setdefault(t["changed"], []).append(t["held_out"])
    for (fault, method), own in by_cell.items():
        moved = ", ".join(f"{value:.2f}" for value in own["all weights of the first layer"])
        lines.append(f"| {fault} | {method} | {own['nothing'][0]:.2f} | {moved} |")
    return lines


def sentence(found: Report) -> str:
    """How the sweep was made."""
    sizes = "-".join(map(str, found["network"]))
    recipe = found["recipe"]
    trials = sum(len(t["held_out"]) for t in found["search"])
    missing = found["missing_cells"], found["missing_trials"]
    left = " Not measured yet: {} cells, {} trials.".format(*missing) if any(missing) else ""
    counts = Counter(found.get("commits", {}).values())
    if len(counts) > 1:
        parts = ", ".join(f"{count} at {commit}" for commit, count in counts.items())
        left += f" Trials and cells by commit: {parts}."
    return (
        f"{sizes}, all of it neurons on the chip, {recipe['epochs']} epochs, batches of "
        f"{recipe['batch_size']}, weights written within a ball of radius {recipe['radius']:g} "
        f"({recipe['bound']} bound), feedback {recipe.get('feedback', 1):g} where settings "
        "name no other. Settings from "
        f"{trials} trials on held-out training data and other chips, all kept. "
        f"`{found['command']}`.{left}"
    )


def map_lines(found: Report) -> list[str]:
    """The map in Markdown: accuracy, and the budget's error in brackets."""
    lines = ["| read noise | " + " | ".join(f"{b} bit" for b in found["bits"]) + " |"]
    lines.append("|---|" + "---|" * len(found["bits"]))
    for i, rms in enumerate(found["noise"]):
        cells = [
            f"{score({'mean': value, 'sd': found['sd'][i][j]})} ({found['error'][i][j]:.2g})"
            for j, value in enumerate(found["accuracy"][i])
        ]
        lines.append(f"| {rms:g} | " + " | ".join(cells) + " |")
    return [*lines, "", f"Mean ± deviation over {found['chips']} chip(s), each with its own seed."]


def budget_lines(found: Report) -> list[str]:
    """Predicted against measured gradient errors, a row for each device, in Markdown."""
    lines = ["| device | best β | predicted / measured at β/3 | at β | at 3β | limit |"]
    lines.append("|---|---|---|---|---|---|")
    for row in found["rows"]:
        cells = [f"{p['predicted']:.2g} / {p['measured']:.2g}" for p in row["points"]]
        words = " | ".join([row["device"], f"{row['points'][1]['beta']:.2g}", *cells, row["limit"]])
        lines.append(f"| {words} |")
    points = sum(len(row["points"]) for row in found["rows"])
    return [
        *lines, "",
        f"Worst factor over {points} points: {found['worst_factor']:.2f}, asked: "
        f"{found['bound']:g}: {found['verdict']} (`{found['command']}`).",
    ]  # fmt: skip


def pulsed_lines(found: Report) -> list[str]:
    """Test accuracy by device, as it is and with the remedy, in Markdown."""
    lines = ["| device | pulses | with Tiki-Taka |", "|---|---|---|"]
    by_name: dict[str, dict[bool, Report]] = {}
    for row in found["rows"]:
        by_name.setdefault(row["device"], {})[row["remedy"]] = row["test"]
    for name, rows in by_name.items():
        lines.append(f"| {name} | {score(rows.get(False))} | {score(rows.get(True))} |")
    trials = sum(len(row["search"]) for row in found["rows"])
    return [
        *lines, "",
        f"{found['network']}, {found['epochs']} epochs, per cent, mean ± deviation over "
        f"{found['seeds']} seeds, each with its own sample of devices; settings from {trials} "
        f"trials on a fifth of the training data, all kept. `{found['command']}`.",
    ]  # fmt: skip


def write_sweep(found: Report, folder: Path, stem: str) -> list[Path]:
    """JSON, Markdown, figures, and one page that needs no other file."""
    from toreqprop import plots
    from toreqprop.plots.devices import faults_figure

    parts = [
        f"# Learning on faulty chips: {found['task']}",
        "",
        "Test accuracy on the chip in per cent, mean ± deviation over chips, each with its own "
        f"seed. {sentence(found)} Commit {found['commit']}.",
        "", *table_lines(found), "", "## Claims", "", *claim_lines(found),
        "", "## Settings: learning rate, epochs", "", *settings_lines(found),
    ]  # fmt: skip
    figure = faults_figure(found)
    tables = [table_lines(found), claim_lines(found), settings_lines(found)]
    page = _page(f"Learning on faulty chips: {found['task']}", sentence(found), figure, tables)
    paths = _write(found, folder, stem, "\n".join(parts) + "\n", page)
    return [*paths, *(plots.save(figure, folder / f"{stem}.{kind}") for kind in ("svg", "png"))]


def write_map(found: Report, folder: Path, stem: str) -> list[Path]:
    """The same of the map of noise against resolution."""
    from toreqprop import plots
    from toreqprop.plots.devices import map_figure

    title = f"Noise against resolution: {found['task']}"
    about = "Test accuracy in situ, in brackets the error of one gradient as predicted before it."
    text = "\n".join([f"# {title}", "", about, "", *map_lines(found)]) + "\n"
    figure = map_figure(found)
    paths = _write(found, folder, stem, text, _page(title, about, figure, [map_lines(found)]))
    return [*paths, *(plots.save(figure, folder / f"{stem}.{kind}") for kind in ("svg", "png"))]


def _write(found: Report, folder: Path, stem: str, text: str, page: str) -> list[Path]:
    texts = {
        "json": json.dumps(found, indent=1, allow_nan=False) + "\n",
        "md": text,
        "html": page,
    }
    for kind, content in texts.items():
        write_atomically(folder / f"{stem}.{kind}", content)
    return [folder / f"{stem}.{kind}" for kind in texts]


def _page(title: str, about: str, figure: Any, tables: list[list[str]]) -> str:
    """Self-contained: tables and the drawing inside."""
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    svg = drawn.getvalue()
    body = "\n".join(_html_table(lines) for lines in tables)
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>"
        "body{font:15px sans-serif;max-width:60em;margin:2em auto}table{border-collapse:collapse;"
        "margin:1em 0}td,th{padding:.2em .7em;border-bottom:1px solid #ddd;text-align:left}"
        f"svg{{max-width:100%}}</style><h1>{escape(title)}</h1><p>{escape(about)}</p>"
        f"{svg[svg.index('<svg') :]}{body}</html>\n"
    )


def _html_table(lines: list[str]) -> str:
    rows = [[escape(c.strip()) for c in x.strip("|").split("|")] for x in lines if x[:1] == "|"]
    head = "".join(f"<th>{c}</th>" for c in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>" for row in rows[2:])
    return f"<table><tr>{head}</tr>{body}</table>"
