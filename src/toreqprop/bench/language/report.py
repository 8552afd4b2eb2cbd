"""The study's tables, samples and picture, from what its file holds; computes nothing new."""

from __future__ import annotations

from typing import Any

from toreqprop.bench.language.networks import TITLES
from toreqprop.evidence.checked import check_lines as check_lines
from toreqprop.evidence.checked import interval
from toreqprop.plots.style import CYCLE, GREY, STYLES, finish, new_figure, plain_style

Report = dict[str, Any]
NEIGHBOURS = {
    "uniform": "all characters alike",
    "one": "how frequent each is, counted",
    "two": "pairs of neighbours, counted",
    "three": "triples, counted",
}


def table_lines(found: Report) -> list[str]:
    """One row for each network, and one for each way of counting."""
    lines = [
        "| predictor | parameters | characters trained on | bits per character, 95 % interval "
        "| worst seed | seeds | processor time |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["summaries"]:
        lines.append(
            f"| {TITLES[row['method']]} | {row['parameters']:,} | {row['tokens']:,} "
            f"| {interval(row['bits'], 3)} | {row['worst_seed']:.3f} | {row['seeds']} "
            f"| {row['timing']['cpu_seconds']:.0f} s |"
        )
    counted = found["counted"]
    for name, said in NEIGHBOURS.items():
        seen = "–" if name == "uniform" else f"{counted['training_characters']:,}"
        lines.append(f"| {said} | – | {seen} | {counted[name]:.3f} | – | – | – |")
    return lines


def gap_lines(found: Report) -> list[str]:
    """EP minus each other network, paired by seed."""
    lines = [
        "| EP against | gap in bits, 95 % interval | margin | verdict |",
        "|---|---|---|---|",
    ]
    for each in found["comparisons"]:
        lines.append(
            f"| {TITLES[each['against']]} | {interval(each['gap'], 4, '+')} "
            f"| ±{each['margin']:g} | {each['verdict']} |"
        )
    return lines


def certificate_lines(found: Report) -> list[str]:
    """The gradient at first, in the middle and at the end, and how far it is from others."""
    lines = [
        "| after updates | certified | smallest cosine | norm ratios | steps "
        "| norm of ∂f/∂s | asymmetry | cosine without the correction "
        "| cosine of backprop through one pass |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found["summaries"]:
        for stage in row.get("certificates", ()):
            lines.append(
                f"| {stage['update']:,} | {stage['passed']} of {row['seeds']} "
                f"| {stage['cosine']:.5f} | {stage['least_ratio']:.3f} to "
                f"{stage['largest_ratio']:.3f} | {_steps(stage['steps'])} "
                f"| {stage['contraction']:.2f} | {stage['asymmetry']:.2f} "
                f"| {stage['uncorrected_cosine']:.3f} | {stage['one_pass_cosine']:.3f} |"
            )
    return lines


def settling_lines(found: Report) -> list[str]:
    """What relaxing was about: norms, steps, and bits where it is cut short."""
    settling = [row for row in found["summaries"] if "cut" in row]
    if not settling:
        return ["No network that settles was trained."]
    cuts = list(settling[0]["cut"])
    heads = " | ".join("settled" if cut == "settled" else f"{cut} steps" for cut in cuts)
    lines = [
        "| network | norms of W_q, W_k, W_v, W_u | steps at the end of training | did not settle "
        f"| validation bits, {heads} |",
        "|---|---|---|---|" + "---|" * len(cuts),
    ]
    for row in settling:
        norms = ", ".join(f"{value:.2f}" for value in row["norms"].values())
        shown = " | ".join(f"{row['cut'][cut]:.3f}" for cut in cuts)
        lines.append(
            f"| {TITLES[row['method']]} | {norms} | {_steps(row['steps'])} "
            f"| {row['unsettled']} of {row['relaxations']:,} | {shown} |"
        )
    return lines


def text_lines(found: Report) -> list[str]:
    """Which works were held out, and the sizes of networks and trainings."""
    works, shape = found["counted"]["works"], found["shape"]
    held = {part: ", ".join(_title(name) for name in works[part]) for part in works}
    first = found["summaries"][0]
    rates = ", ".join(f"{row['rate']:g} ({TITLES[row['method']]})" for row in found["summaries"])
    return [
        f"* Text: {len(works['train'])} works for training, "
        f"{found['counted']['training_characters']:,} characters. Validation: "
        f"{held['validation']}. Test: {held['test']}; "
        f"{found['runs'][0]['test_characters']:,} of its characters are scored.",
        f"* Networks: width {shape['width']}, {shape['heads']} heads, a window of "
        f"{shape['context']} characters; projections of norm {shape['radius']:g} at most, "
        f"tolerance {shape['tol']:g}, β = {shape['beta']:g}.",
        f"* Trainings: {first['tokens']:,} characters each. Rates: {rates}.",
    ]


def _title(name: str) -> str:
    return name.removesuffix("_gut.txt").replace("_", " ")


def sample_lines(found: Report) -> list[str]:
    """What each network of the first seed writes."""
    lines = []
    first = min(run["seed"] for run in found["runs"])
    for run in found["runs"]:
        if run["seed"] == first:
            lines += [f"**{TITLES[run['method']]}**", "", *_written(run["sample"]), ""]
    return lines[:-1]


def search_lines(trials: list[Report]) -> list[str]:
    """Every trial on validation text, in the order they were made."""
    lines = [
        "| tried | network | rate | updates of windows | radius | tolerance, solver | bits | steps "
        "| did not settle |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for t in trials:
        lines.append(
            f"| {t['kind']} | {TITLES[t['method']]} | {t['rate']:g} | {t['updates']} of "
            f"{t['batch']} | {t['radius']:g} | {t['tol']:g}, {t['solver']} | {t['bits']:.3f} "
            f"| {_steps(t['steps']) if t['steps'] else '–'} "
            f"| {'–' if t['unsettled'] is None else t['unsettled']} |"
        )
    return lines


@plain_style()
def curves_figure(found: Report) -> Any:
    """Bits of validation text against characters trained on: the mean of the seeds, and the band
    between the best and the worst of them."""
    import numpy as np

    figure, (ax,) = new_figure(1, width=6.0, height=3.6)
    for number, row in enumerate(found["summaries"]):
        runs = [r["curve"] for r in found["runs"] if r["method"] == row["method"]]
        curves = np.array([curve["bits"] for curve in runs])
        tokens, colour = np.array(runs[0]["tokens"]), CYCLE[number % len(CYCLE)]
        ax.fill_between(tokens, curves.min(0), curves.max(0), color=colour, alpha=0.15, lw=0)
        ax.plot(
            tokens, curves.mean(0), color=colour, ls=STYLES[number], label=TITLES[row["method"]]
        )
    for name in ("two", "three"):
        level = found["counted"][name]
        ax.axhline(level, color=GREY, lw=0.8, ls=":")
        ax.text(0.01, level, f"{NEIGHBOURS[name]} (test)", color=GREY, ha="left", va="bottom",
                fontsize=7, transform=ax.get_yaxis_transform())  # fmt: skip
    finish(ax, "characters trained on", "bits per character, validation")
    return figure


def _written(text: str) -> list[str]:
    """A sample's lines as a block of code; empty ones at the ends are left out."""
    return [f"    {line}".rstrip() for line in text.strip("\n").split("\n")]


def _steps(steps: Report) -> str:
    return " + ".join(f"{count:.1f} {phase}" for phase, count in steps.items())
