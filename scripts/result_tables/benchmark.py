"""The benchmark of the seeds' tasks, tables of others, and networks that ship."""

from __future__ import annotations

import json

import front_page
from scaling_table import scaling_lines

from toreqprop.bench.rows import ROWS

from .sources import BENCHMARK, RESULTS, ROOT, Report, load

NETWORKS = ROOT / "src" / "toreqprop" / "play" / "networks"


def play_records() -> dict[str, Report]:
    """The records in the checkpoints of `toreqprop play`."""
    return {
        name: json.loads((NETWORKS / name / "checkpoint.json").read_text())["about"]["play"]
        for name in ("digits", "hidden", "maze")
    }


def sklearn_table() -> list[str]:
    """The estimators next to scikit-learn's networks, cross-validated."""
    lines = ["| data | features | score | EqProp | MLP | gap |", "|---|---|---|---|---|---|"]
    for c in load("sklearn.json")["comparisons"]:
        means = f"{c['our_mean']:.4f} | {c['their_mean']:.4f} | {c['gap']:+.4f}"
        lines.append(f"| {c['data']} | {c['features']} | {c['score']} | {means} |")
    return lines


def tables_table() -> list[str]:
    """Small public tables: the shared defaults next to scikit-learn's network."""
    found = load("tables.json")
    lines = [
        "| table | of | rows | classes | chance | EqProp | MLPClassifier |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["comparisons"]:
        figures = " | ".join(
            f"{100 * row[key]:.1f}" for key in ("chance", "our_mean", "their_mean")
        )
        sizes = f"{row['rows']} | {row['classes']}"
        lines.append(f"| {row['table']} | {row['source']} | {sizes} | {figures} |")
    total = found["summary"]
    return [
        *lines, "",
        f"Test accuracy in percent, mean of {len(found['seeds'])} seeds. Mean rank "
        f"{total['our_mean_rank']:.2f} to {total['their_mean_rank']:.2f} over {total['tables']} "
        f"tables: {total['won']} won, {total['drawn']} drawn, {total['lost']} lost; mean "
        f"difference {100 * total['mean_difference']:+.2f} ± "
        f"{100 * total['standard_error']:.2f} points (standard error over tables).",
    ]  # fmt: skip


def zoo_table() -> list[str]:
    """Networks that ship, from their own records."""
    from toreqprop.zoo import RECIPES, record
    from toreqprop.zoo.shipped import FOLDER

    lines = [
        "| name | what it is | test accuracy | chance | smallest cosine | kB | command |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in RECIPES:
        about = record(name)
        size = sum(path.stat().st_size for path in (FOLDER / name).iterdir()) / 1000
        lines.append(
            f"| `{name}` | {about['title']} | {about['test_accuracy']:.2%} "
            f"| {about['chance']:.1%} | {about['certificate']['min_cosine']:.4f} | {size:.0f} "
            f"| `{about['command']}` |"
        )
    return lines


def tables_search() -> list[str]:
    """Every candidate for the shared defaults, by its mean rank on the validation folds."""
    found = load("tables.json")
    names = list(found["grid"])
    lines = [
        "| " + " | ".join(f"`{name}`" for name in names) + " | mean rank | mean accuracy, % |",
        "|---|" + "---|" * (len(names) + 1),
    ]
    for t in sorted(found["tried"], key=lambda t: t["mean_rank"]):
        values = " | ".join(str(t["settings"][name]) for name in names)
        mean = sum(t["accuracy"].values()) / len(t["accuracy"])
        lines.append(f"| {values} | {t['mean_rank']:.2f} | {100 * mean:.2f} |")
    return lines


VERDICTS = {
    "EQUIVALENT": "equivalent within ±{margin:g}",
    "WORSE": "worse",
    "BETTER": "better",
    "NOT SHOWN": "not shown (±{margin:g})",
}


def verdict(row: Report) -> str:
    """The verdict on a row, with its margin, and a real difference where there is one."""
    text = VERDICTS[row["verdict"]].format(margin=row["margin"])
    real = row["verdict"] == "EQUIVALENT" and row["difference_p"] < 0.05
    return f"{text}, but not equal" if real else text


def accuracy_table() -> list[str]:
    """EP next to the stronger baseline, with what it took."""
    lines = [
        "| Task | Seeds | Stronger baseline | EP | Gap, points | Verdict | Time, EP / baseline |",
        "|---|---|---|---|---|---|---|",
    ]
    found = load(BENCHMARK)
    for row in found["rows"]:
        scores = [percent(row["arms"][arm]["accuracy"]) for arm in (row["against"], "ep")]
        gap = row["comparison"]["gap"]["mean"]
        lines.append(
            f"| {row['title']} | {len(row['seeds'])} | {scores[0]} | {scores[1]} | {gap:+.2f} "
            f"| {verdict(row)} | {row['ratio']:.1f}× |"
        )
    for row in found["not_run"]:
        lines.append(f"| {row['title']} | | not run | not run | | | |")
    return lines


def percent(summary: Report) -> str:
    """``97.04 ± 0.35 %``."""
    spread = "" if summary["sd"] is None else f" ± {summary['sd']:.2f}"
    return f"{summary['mean']:.2f}{spread} %"


def bounds_table() -> list[str]:
    """What every row of the benchmark must reach."""
    lines = [
        "| row | network | seeds (full) | accuracy (%) | margin (points) | return of the clone |",
        "|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        reach = "" if row.policy_return is None else f"{row.policy_return:g}"
        if row.below_expert is not None:
            reach = f"the expert's less {row.below_expert:g}"
        lines.append(
            f"| {row.title} (`{row.name}`) | {row.network}, {row.hidden} | {row.seeds} "
            f"| {row.accuracy:.1f} | ±{row.margin:g} | {reach} |"
        )
    return lines


def no_nudge_sentence() -> list[str]:
    """How far random features get: the reason why small tasks prove little."""
    report = load(BENCHMARK)
    control = next(c for c in report["controls"] if c["name"] == "no-nudge")
    row = next(r for r in report["rows"] if r["title"] == control["title"])
    random, trained = control["accuracy"]["ep"]["mean"], row["arms"]["ep"]["accuracy"]["mean"]
    return [
        f"On {row['title']} a network whose hidden weights never change, with only the readout "
        f"trained, reaches {random:.2f} %; the trained one {trained:.2f} %."
    ]


def insights() -> list[str]:
    """What the benchmark's figures say, the unwelcome first."""
    found = load(BENCHMARK)
    return [f"{n}. {line}" for n, line in enumerate(filter(None, found["insights"]), 1)]


def benchmark_source() -> list[str]:
    """Where the benchmark's figures come from."""
    found = load(BENCHMARK)
    return [
        f"By `{found['command']}` at commit `{found['commit']}`, "
        f"{found['timing']['started'][:10]}; test sets that no seed trains on, and the stronger of "
        "two feed-forward baselines."
    ]


def conditions() -> list[str]:
    """What all of this was measured on."""
    found = load(BENCHMARK)["environment"]
    torch = found["packages"]["torch"]
    return [
        f"Measured with torch {torch} and Python {found['python']} on {found['cores']} cores of "
        f"{found['cpu']} ({found['system']}), one thread per run. No GPU was used."
    ]


BLOCKS = {
    "front-tasks": lambda: front_page.tasks_table(load, BENCHMARK),
    "play": lambda: front_page.play_table(play_records()),
    "front-circuits": lambda: front_page.circuits_picture(load),
    "scaling": lambda: scaling_lines(RESULTS / "scaling.json", load),
    "tables": tables_table,
    "zoo": zoo_table,
    "tables-search": tables_search,
    "accuracy": accuracy_table,
    "insights": insights,
    "benchmark-source": benchmark_source,
    "bounds": bounds_table,
    "no-nudge": no_nudge_sentence,
    "conditions": conditions,
}
