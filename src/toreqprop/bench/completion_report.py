"""What `toreqprop completion` found, as tables: scores and gaps, and where gradients go wrong."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

from toreqprop.bench import completion as study
from toreqprop.bench import completion_gradients as gradients
from toreqprop.evidence.statistics import Comparison, compare

NAMES = {
    "mean": "mean image",
    study.EP: "settled, EP",
    study.IMPLICIT: "settled, implicit gradient",
    "twin": "feed-forward, 1 layer",
    "deep twin": "feed-forward, 2 layers",
}
KINDS = {"random": "random places", "block": "a block"}
MARGINS = {"psnr": 0.2, "accuracy": 1.0}
"""What counts as equivalent: in dB, a twentieth of the squared error, and in points."""


def assembled(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The file: every training, and the gradients where they were measured."""
    return {
        "runs": [each for each in found if "method" in each],
        "gradients": [each for each in found if "points" in each],
    }


def scores(report: dict[str, Any], method: str, kind: str, share: float, what: str) -> list[float]:
    """One for each seed, in their order; of the mean image those of EP's seeds."""
    own, part = (study.EP, "mean") if method == "mean" else (method, "scores")
    return [
        row[what]
        for run in sorted(report["runs"], key=lambda run: run["seed"])
        if run["method"] == own
        for row in run[part]
        if (row["kind"], row["share"]) == (kind, share)
    ]


def against(report: dict[str, Any], other: str, kind: str, share: float, what: str) -> Comparison:
    """EP less another, paired by seed."""
    theirs = scores(report, other, kind, share, what)
    own = scores(report, study.EP, kind, share, what)[: len(theirs)]
    return compare(own, theirs, MARGINS[what])


def render_markdown(report: dict[str, Any]) -> list[str]:
    """All tables, one after the other."""
    found = [*table(report, "psnr"), "", *table(report, "accuracy"), "", *networks(report)]
    return [*found, "", *points(report), "", *distances(report)]


def table(report: dict[str, Any], what: str) -> list[str]:
    """Means over seeds for every kind and share of what is hidden, and EP's gaps to the twins."""
    known = {run["method"] for run in report["runs"]}
    methods = [m for m in study.METHODS if m in known]
    methods = ["mean", *methods] if what == "psnr" and study.EP in known else methods
    twins = [t for t in study.TWINS if {t, study.EP} <= known]
    heads = ["hidden", *(NAMES[m] for m in methods), *(f"EP − {NAMES[t]}" for t in twins)]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    digits = 2 if what == "psnr" else 1
    for kind in study.KINDS:
        for share in study.SHARES:
            name = f"{share:.0%}, {KINDS[kind]}"
            cells = [f"**{name}**" if share == study.TRAINED else name]
            for m in methods:
                cells.append(f"{fmean(scores(report, m, kind, share, what)):.{digits}f}")
            cells += [gap(against(report, t, kind, share, what), digits) for t in twins]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def gap(found: Comparison, digits: int) -> str:
    """The mean with its interval, where there are seeds enough."""
    mean = f"{found.gap.mean:+.{digits}f}"
    if found.gap.low is None or found.gap.high is None:
        return mean
    return f"{mean} ({found.gap.low:+.{digits}f} to {found.gap.high:+.{digits}f})"


def sentences(report: dict[str, Any]) -> list[str]:
    """Whether EP is better than a twin, worse or equivalent, as trained and elsewhere."""
    found = []
    for twin in study.TWINS:
        for what, name in (("psnr", "PSNR"), ("accuracy", "class")):
            for trained in (True, False):
                cases = [
                    (f"{share:.0%}, {KINDS[kind]}", against(report, twin, kind, share, what))
                    for kind in study.KINDS
                    for share in study.SHARES
                    if (share == study.TRAINED) is trained
                ]
                where = "as trained" if trained else "with more or less hidden"
                verdicts = "; ".join(f"{case}: {verdict(gap_)}" for case, gap_ in cases)
                found.append(f"* **{name}, {where}**, EP beside {NAMES[twin]}: {verdicts}.")
    return found


def verdict(found: Comparison) -> str:
    """In a word what the interval of the gap and the test of equivalence say."""
    if found.gap.low is None or found.gap.high is None:
        return "one seed says nothing"
    if found.gap.low > 0:
        return "better"
    if found.gap.high < 0:
        return "worse, though equivalent" if found.equivalent else "worse"
    return "equivalent" if found.equivalent else "undecided"


def networks(report: dict[str, Any]) -> list[str]:
    """Parameters, trainings and certificates."""
    lines = [
        "| network | parameters | rate, scale | seeds | certified | smallest cosine | contraction, "
        "bound | steps, free and nudged | not settled in the last epoch |",
        "|" + "---|" * 9,
    ]
    for method in study.METHODS:
        runs = [run for run in report["runs"] if run["method"] == method]
        if not runs:
            continue
        setup = runs[0]["setup"]
        proofs = [run["certificate"] for run in runs if "certificate" in run]
        cells = [NAMES[method], f"{runs[0]['parameters']:,}"]
        cells += [f"{setup['rate']:g}, {setup['scale']:g}", str(len(runs))]
        if proofs:
            steps = [run["relaxations"] for run in runs]
            cells += [
                f"{sum(p['ok'] for p in proofs)} of {len(proofs)}",
                f"{min(p['min_cosine'] for p in proofs):.4f}",
                f"{max(p['contraction'] for p in proofs):.3f}, "
                f"{max(p['lipschitz'] for p in proofs):.3f}",
                ", ".join(
                    f"{fmean(s[phase] for s in steps):.1f}"
                    for phase in ("free_steps", "nudged_steps")
                    if steps[0][phase] is not None
                ),
                str(sum(s["unconverged"] for s in steps)),
            ]
        else:
            cells += ["–"] * 5
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def points(report: dict[str, Any]) -> list[str]:
    """Cosines of whole batches by nudge and tolerance, the couplings stretched more and more."""
    if not report["gradients"]:
        return []
    heads = [f"β {beta:g}, tol {tol:g}" for beta, tol in gradients.GRID]
    lines = [
        "| couplings | norm | not settled | 1 − ρ, median (smallest) | several equilibria | "
        f"{' | '.join(heads)} | β 0.01, tol 0.001, max_gain 2 |",
        "|" + "---|" * (6 + len(heads)),
    ]
    for training in report["gradients"]:
        for point in training["points"]:
            far = point["distance"]
            cells = [f"times {point['stretch']:g}", f"{point['norm']:.2f}"]
            cells += [str(study.CERTIFIED - point["settled"])]
            cells += [f"{median(far):.3f} ({min(far):.4f})"]
            cells += [f"{point['several']} of {point['settled']}"]
            cells += [f"{c['cosine']:.3f}" for c in point["compared"]]
            lines.append(f"| {' | '.join(cells)} | {point['limited']:.3f} |")
    return lines


def distances(report: dict[str, Any]) -> list[str]:
    """All samples, by how far from critical they are."""
    if not report["gradients"]:
        return []
    heads = [f"β {beta:g}, tol {tol:g}" for beta, tol in gradients.GRID]
    lines = [
        f"| 1 − ρ | samples | share of all gradients | {' | '.join(heads)} |",
        "|" + "---|" * (3 + len(heads)),
    ]
    every = [p for training in report["gradients"] for p in training["points"]]
    total = sum(sum(p["size"]) for p in every)
    for low, high in zip((0.0, *gradients.NEAR), gradients.NEAR, strict=False):
        rows = [(p, k) for p in every for k, d in enumerate(p["distance"]) if low < d <= high]
        if not rows:
            continue
        share = sum(p["size"][k] for p, k in rows) / total
        cells = [f"{low:g} to {high:g}", str(len(rows)), f"{share:.0%}"]
        for number in range(len(gradients.GRID)):
            cosines = sorted(p["compared"][number]["samples"][k] for p, k in rows)
            cells.append(f"{median(cosines):.3f} ({cosines[0]:.2f})")
        lines.append(f"| {' | '.join(cells)} |")
    return lines
