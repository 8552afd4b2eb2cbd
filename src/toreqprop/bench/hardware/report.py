"""What a sweep found: tables, claims with their verdicts, and a page; nothing is measured here."""

from __future__ import annotations

from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from toreqprop.atomic import write_atomically
from toreqprop.bench.hardware.faults import FAULTS, MAP_BITS, MAP_NOISE
from toreqprop.bench.hardware.methods import METHODS
from toreqprop.bench.hardware.sweep import Row, scores
from toreqprop.evidence.statistics import compare, summarise

STATIC = (
    "stuck weights 20 %",
    "neuron offsets 0.5",
    "spread of weights 30 %",
    "up/down mismatch 30 %",
    "weights 2 bit",
)
"""Where learning in place has to beat every deployment."""

WITHIN: dict[str, dict[str, float]] = {
    "digits": {"read noise, averaged 0.2": 1.0, "weights 4 bit, states 8 bit": 1.0},
    "mnist": {"weights ternary": 2.0},
}
"""Points by which learning in place may be worse than without the fault, by the interval's end."""

RIVALS = ("clean EP", "clean backprop", "aware backprop")


def summary(kept: Row) -> dict[str, Any]:
    """Rows by fault, in the order of the sweep, and the claims."""
    measured = {row["fault"] for row in kept["cells"].values()}
    names = [fault.name for fault in FAULTS]
    names += sorted(name for name in measured if name.startswith("device "))
    rows = []
    for name in (n for n in names if n in measured):
        found = scores(kept, name)
        figures = {m: asdict(summarise(list(found[m].values()))) for m in METHODS if m in found}
        rows.append({"fault": name, "scores": figures})
    return {"task": kept["task"], "methods": list(METHODS), "rows": rows, "claims": claims(kept)}


def claims(kept: Row) -> list[dict[str, Any]]:
    """Each with the difference, its 95 % interval, and PASS, FAIL or NOT RUN."""
    found = []
    for fault in STATIC:
        values = scores(kept, fault)
        for rival in RIVALS:
            gap = _gap(values.get("in situ", {}), values.get(rival, {}))
            claim = f"{fault}: in situ beats {rival} deployed"
            found.append(_claim(claim, gap, lambda g: g.low is not None and g.low > 0))
    clean = scores(kept, "none").get("in situ", {})
    for fault, margin in WITHIN[kept["task"]].items():
        gap = _gap(scores(kept, fault).get("in situ", {}), clean)
        claim = f"{fault}: in situ within {margin:g} point(s) of no fault"
        found.append(_claim(claim, gap, lambda g, m=margin: g.low is not None and g.low >= -m))
    return found


def _gap(first: dict[int, float], second: dict[int, float]) -> Any:
    seeds = sorted(set(first) & set(second))
    if not seeds:
        return None
    return compare([first[s] for s in seeds], [second[s] for s in seeds]).gap


def _claim(claim: str, gap: Any, holds: Any) -> dict[str, Any]:
    if gap is None:
        return {"claim": claim, "verdict": "NOT RUN", "gap": None}
    return {"claim": claim, "verdict": "PASS" if holds(gap) else "FAIL", "gap": asdict(gap)}


def noise_map(kept: Row, errors: list[list[float]] | None = None) -> dict[str, Any] | None:
    """Mean accuracy in place, rows by noise; None where nothing of it was measured."""
    table: list[list[float | None]] = []
    chips = 0
    for rms in MAP_NOISE:
        row: list[float | None] = []
        for bits in MAP_BITS:
            values = scores(kept, f"map noise {rms:g}, {bits} bit").get("in situ", {})
            row.append(sum(values.values()) / len(values) if values else None)
            chips = max(chips, len(values))
        table.append(row)
    if all(v is None for row in table for v in row):
        return None
    return {
        "chips": chips,
        "noise": list(MAP_NOISE), "bits": list(MAP_BITS), "accuracy": table, "error": errors or [],
    }  # fmt: skip


def score(figures: dict[str, Any] | None) -> str:
    """``95.1 ± 0.6``."""
    if figures is None:
        return "–"
    sd = "" if figures["sd"] is None else f" ± {figures['sd']:.1f}"
    return f"{figures['mean']:.1f}{sd}"


def gap_text(gap: dict[str, Any] | None) -> str:
    """``+2.3 (1.1 to 3.5), n = 10``."""
    if gap is None:
        return "–"
    span = "" if gap["low"] is None else f" ({gap['low']:+.1f} to {gap['high']:+.1f})"
    return f"{gap['mean']:+.1f}{span}, n = {gap['n']}"


def table_lines(found: dict[str, Any]) -> list[str]:
    """Accuracies in Markdown, a row for each fault."""
    methods = found["methods"]
    lines = [
        "| fault | " + " | ".join(methods) + " | chips |",
        "|---|" + "---|" * (len(methods) + 1),
    ]
    for row in found["rows"]:
        cells = [score(row["scores"].get(m)) for m in methods]
        chips = max(s["n"] for s in row["scores"].values())
        lines.append(f"| {row['fault']} | " + " | ".join(cells) + f" | {chips} |")
    return lines


def claim_lines(found: dict[str, Any]) -> list[str]:
    """Claims in Markdown."""
    lines = ["| claim | difference, points | verdict |", "|---|---|---|"]
    for claim in found["claims"]:
        lines.append(f"| {claim['claim']} | {gap_text(claim['gap'])} | {claim['verdict']} |")
    return lines


def map_lines(found: dict[str, Any]) -> list[str]:
    """The map in Markdown: accuracy, and the budget's error in brackets."""
    lines = ["| read noise | " + " | ".join(f"{b} bit" for b in found["bits"]) + " |"]
    lines.append("|---|" + "---|" * len(found["bits"]))
    for i, rms in enumerate(found["noise"]):
        cells = []
        for j, value in enumerate(found["accuracy"][i]):
            error = f" ({found['error'][i][j]:.2g})" if found["error"] else ""
            cells.append(("–" if value is None else f"{value:.1f}") + error)
        lines.append(f"| {rms:g} | " + " | ".join(cells) + " |")
    return [*lines, "", f"Chips and seeds of each: {found['chips']}."]


def write_reports(kept: Row, folder: Path, stem: str) -> list[Path]:
    """Markdown and one HTML page with its figure, beside the JSON of the sweep."""
    found = summary(kept)
    grid = noise_map(kept, kept.get("map_errors"))
    head = (
        f"# Learning on faulty chips: {found['task']}\n\nTest accuracy on the chip in per cent, "
        f"mean ± deviation over chips and seeds. Commit {kept['commit']}.\n"
    )
    parts = [head, *table_lines(found), "", "## Claims", "", *claim_lines(found)]
    if grid is not None:
        parts += ["", "## Noise against resolution, in situ", "", *map_lines(grid)]
    text = "\n".join(parts) + "\n"
    paths = [folder / f"{stem}.md", folder / f"{stem}.html"]
    write_atomically(paths[0], text)
    write_atomically(paths[1], _page(found, grid, kept))
    return paths


def _page(found: dict[str, Any], grid: dict[str, Any] | None, kept: Row) -> str:
    """Self-contained: tables and the drawing inside."""
    from toreqprop.plots.devices import faults_figure
    from toreqprop.plots.style import need_matplotlib

    need_matplotlib()
    import io

    drawn = io.StringIO()
    faults_figure(found).savefig(drawn, format="svg", metadata={"Date": None})
    svg = drawn.getvalue()
    tables = [table_lines(found), claim_lines(found)]
    tables += [] if grid is None else [map_lines(grid)]
    body = "\n".join(_html_table(lines) for lines in tables)
    title = f"Learning on faulty chips: {escape(found['task'])}"
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>body{{font:"
        "15px sans-serif;max-width:60em;margin:2em auto}table{border-collapse:collapse;margin:1em "
        "0}td,th{padding:.2em .7em;border-bottom:1px solid #ddd;text-align:left}svg{max-width:100%}"
        f"</style><h1>{title}</h1><p>Test accuracy on the chip, %. Commit "
        f"{escape(kept['commit'])}.</p>{svg[svg.index('<svg') :]}{body}</html>\n"
    )


def _html_table(lines: list[str]) -> str:
    rows = [[escape(c.strip()) for c in line.strip("|").split("|")] for line in lines if line]
    head = "".join(f"<th>{c}</th>" for c in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>" for row in rows[2:])
    return f"<table><tr>{head}</tr>{body}</table>"
