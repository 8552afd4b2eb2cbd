"""What the site adds to docs/: results pages rendered from JSON, figures, root documents.

Nothing is typed here: a page of results is a template filled with results/*.json at build time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import notebooks
from mkdocs.structure.files import File, Files
from result_tables import benchmark, speed, verification
from result_tables.sources import BENCHMARK, RESULTS, ROOT, load

from toreqprop.bench.reports import page as benchmark_html
from toreqprop.bench.reports import render as render_benchmark
from toreqprop.play.page import page as play_page
from toreqprop.play.page import shipped_data
from toreqprop.verify.report_files import page as verification_html
from toreqprop.verify.report_files import render as render_verification

QUICK, FULL = (f"verification/{level}/verification.json" for level in ("quick", "full"))
"""Reports of what `toreqprop verify` does unasked, and of five seeds."""

STATIC = (
    "beta_sweep.svg",
    "memory.svg",
    "speed.json",
    "memory.json",
    "beta_sweep.json",
    "play/search.jsonl",
)


def benchmark_page() -> str:
    page = render_benchmark("benchmark.md.j2", load(BENCHMARK))
    page = page.replace("](../../../docs/estimators.md)", "](../estimators.md)")
    return page + elsewhere("benchmark")


def elsewhere(name: str) -> str:
    """Where the same measurements stand in other forms."""
    return f"\n\nWith figures: [one page]({name}-report.html). Every number: [JSON]({name}.json).\n"


def verification_page() -> str:
    return verification_of(QUICK) + elsewhere("verification")


def verification_of(name: str) -> str:
    """The page of one report."""
    return render_verification("notebook.md.j2", load(name))


def outcome(name: str) -> str:
    """How many tracks ran, and how they came out."""
    found = load(name)["overall"]
    counts = ", ".join(f"{n} {status}" for status, n in found["counts"].items() if n)
    return f"{found['verified']} tracks ran: {counts}."


def overview_page() -> str:
    parts = [
        "# Results",
        "",
        "Every figure here is read from `results/*.json` when the site is built.",
        "",
        "## Accuracy next to backpropagation",
        "",
        *benchmark.insights(),
        "",
        *benchmark.accuracy_table(),
        "",
        "[Full report](benchmark.md).",
        "",
        *benchmark.no_nudge_sentence(),
        "",
        "## Verification",
        "",
        f"Smoke Test: {outcome(QUICK)} [Each with its evidence](verification.md).",
        "",
        f"Full, five seeds: {outcome(FULL)} [The evidence](verification-full.md).",
        "",
        "## Cost",
        "",
        "Processor time of a training step over that of others:",
        "",
        *speed.speed_overview_table(),
        "",
        "[Speed and memory](speed.md).",
        "",
        *benchmark.conditions(),
        "",
    ]
    return "\n".join(parts)


def speed_page() -> str:
    parts = [
        "# Speed and memory",
        "",
        "Median processor time of one training step (Adam, cross-entropy) over that of others, all "
        "interleaved in one run of `toreqprop speed`. Networks that hardly recur:",
        "",
        *speed.speed_table(),
        "",
        "Networks whose couplings are at their bounds:",
        "",
        *speed.speed_at_bounds_table(),
        "",
        "Whole trainings, by `toreqprop speed --training`:",
        "",
        *speed.speed_training_table(),
        "",
        "Peak memory of one training step, one process for each point, by `toreqprop memory`:",
        "",
        *speed.memory_table(),
        "",
        "![Peak memory](memory.svg)",
        "",
        "Of the networks that are timed above: how far the resident set rises in a step, and that "
        "over what others need:",
        "",
        *speed.memory_rows_table(),
        "",
        *benchmark.conditions(),
        "",
    ]
    return "\n".join(parts)


def deep_page() -> str:
    parts = [
        "# Deep models",
        "",
        "## Layered: `HopfieldMLP`",
        "",
        "One training step next to that of the feed-forward network of the same sizes, couplings "
        "at their bounds, by `toreqprop speed`; [accuracy against depth](../depth.md):",
        "",
        *speed.speed_at_bounds_table(),
        "",
        "## Convolutional: `HopfieldConvNet`",
        "",
        "All 60,000 images, both networks with the same layers, one seed; `toreqprop "
        "convolutional` makes it again:",
        "",
        *speed.convolutional_table(),
        "",
        "## Transformer",
        "",
        f"By `{verification.transformer_track()[1]}`, [with comparisons and certificates]"
        "(verification-full.md).",
        "",
        *verification.transformer_table(),
        "",
    ]
    return "\n".join(parts)


def sklearn_page() -> str:
    found = load("sklearn.json")
    parts = [
        "# Next to scikit-learn",
        "",
        f"`EqPropClassifier` and `EqPropRegressor` next to `MLPClassifier` and `MLPRegressor`, all "
        f"at their defaults, by `{found['command']}`. {found['protocol']}.",
        "",
        *benchmark.sklearn_table(),
        "",
    ]
    return "\n".join(parts)


PAGES: dict[str, Callable[[], str]] = {
    "results/deep.md": deep_page,
    "results/sklearn.md": sklearn_page,
    "results/index.md": overview_page,
    "results/benchmark.md": benchmark_page,
    "results/verification.md": verification_page,
    "results/verification-full.md": lambda: verification_of(FULL) + elsewhere("verification-full"),
    "results/speed.md": speed_page,
    **{
        f"notebooks/{path.stem}.md": lambda path=path: notebooks.page(
            json.loads(path.read_text()), path.name
        )
        for path in sorted(notebooks.FOLDER.glob("*.ipynb"))
    },
    "contributing.md": lambda: (ROOT / "CONTRIBUTING.md").read_text(),
    "changelog.md": lambda: (ROOT / "CHANGELOG.md").read_text(),
}


LINKS = {
    "results/verification/quick/verification_notebook.md": "results/verification.md",
    "results/verification/full/verification_notebook.md": "results/verification-full.md",
    "results/benchmark/quick/benchmark.md": "results/benchmark.md",
    "results/benchmark/full/benchmark.md": "results/benchmark.md",
    "results/": "results/",
    "CONTRIBUTING.md": "contributing.md",
}
"""Paths in the repository and the pages of the site that show them."""


BUILT: dict[str, Callable[[], str]] = {
    "results/benchmark-report.html": lambda: benchmark_html(load(BENCHMARK)),
    "results/verification-report.html": lambda: verification_html(load(QUICK)),
    "results/verification-full-report.html": lambda: verification_html(load(FULL)),
    "results/benchmark.json": lambda: (RESULTS / BENCHMARK).read_text(),
    "results/verification.json": lambda: (RESULTS / QUICK).read_text(),
    "results/verification-full.json": lambda: (RESULTS / FULL).read_text(),
}
"""Files of the site that are no pages of it: reports with figures, and every number."""


PLAY = "play/index.html"
"""Where the page of `toreqprop play` goes: a page of its own, outside the theme."""


def static_uri(name: str) -> str:
    """Where a file of results goes."""
    return f"results/{name}"


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add the generated pages and the files of results they point to."""
    for uri, page in PAGES.items():
        files.append(File.generated(config, uri, content=page()))
    for uri, text in BUILT.items():
        files.append(File.generated(config, uri, content=text()))
    for name in STATIC:
        uri = static_uri(name)
        files.append(File.generated(config, uri, abs_src_path=str(RESULTS / name)))
    play = play_page(shipped_data())
    files.append(File.generated(config, PLAY, content=play))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links that are right in the repository, made right in the site."""
    uri = page.file.src_uri
    if uri in ("contributing.md", "changelog.md"):
        return re.sub(r"\]\(docs/", "](", markdown)
    up = "../" * uri.count("/")
    for source, target in LINKS.items():
        markdown = markdown.replace(f"](../{up}{source}", f"]({up}{target}")
    return markdown
