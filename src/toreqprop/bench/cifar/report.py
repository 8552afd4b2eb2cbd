"""The study's tables and picture, from what its file holds; computes nothing new."""

from __future__ import annotations

from typing import Any

from toreqprop.bench.cifar.plan import PUBLISHED, planned
from toreqprop.bench.cifar.recipe import METHODS
from toreqprop.bench.cifar.study import accuracies, interval
from toreqprop.evidence.statistics import summarise
from toreqprop.plots.style import CYCLE, STYLES, finish, new_figure, plain_style

Report = dict[str, Any]
PARTS = {"front": "front", "settling": "layers that settle", "readout": "readout"}
NAMES = {"ep": "EP, network that settles", "backprop": "backprop, feed-forward twin"}

LEAST = {"pure": 75.0, "hybrid": 80.0}
"""Percent of the test images that each network was to name, from every seed."""

MARGIN, MOST_MINUTES = 1.5, 90.0
"""Points below the twin at most, minutes of two cores for a training at most."""


def table_lines(found: Report) -> list[str]:
    """One row for each training, then the mean of each method where there are several seeds."""
    lines = [
        "| method | seed | parameters | training images | epochs | rate "
        "| test accuracy, 95 % interval | processor time |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for run in found["runs"]:
        low, high = interval(run)
        lines.append(
            f"| {NAMES[run['method']]} | {run['seed']} | {run['parameters']:,} "
            f"| {run['training_images']:,} "
            f"| {run['settings']['epochs']} | {run['settings']['rate']:g} "
            f"| {run['accuracy']:.2%} [{low:.1f}, {high:.1f}] "
            f"| {run['timing']['training'] / 60:.1f} min |"
        )
    for method in METHODS:
        scores = accuracies(found["runs"], method)
        if len(scores) > 1:
            of = summarise(scores)
            lines.append(
                f"| **{NAMES[method]}** | mean of {of.n} | | | | | **{of.mean:.2f}%** "
                f"[{of.low:.1f}, {of.high:.1f}] over seeds, worst {min(scores):.2f}% | |"
            )
    return lines


def share_lines(found: Report) -> list[str]:
    """Who trains how much of the network, and what share of a training step's time that takes."""
    lines = [
        "| part | trained by | parameters | products of a pass upwards, an image "
        "| time of a step |",
        "|---|---|---|---|---|",
    ]
    runs = [run for run in found["runs"] if run["method"] == "ep"]
    if not runs or found["network"] != "hybrid":
        return []
    parameters, products = (runs[0]["shares"][name] for name in ("parameters", "products"))
    steps = [probe["timing"] for run in runs for probe in run["probes"].values()]
    front = sum(step["front"] for step in steps) / sum(step["ep"] for step in steps)
    for part, by, time in (
        ("front", "autograd, from the gradient that EP hands on", f"{front:.0%}"),
        ("settling", "EP", f"{1 - front:.0%}, the readout included"),
        ("readout", "its own loss", ""),
    ):
        lines.append(
            f"| {PARTS[part]} | {by} "
            f"| {parameters[part]:,} ({parameters[part] / sum(parameters.values()):.1%}) "
            f"| {products[part]:,} ({products[part] / sum(products.values()):.1%}) | {time} |"
        )
    return lines


def certificate_lines(found: Report) -> list[str]:
    """What EP's gradient was worth at first, in the middle and at the end, and what it took."""
    hybrid = found["network"] == "hybrid"
    lines = [
        "| seed | epoch | certificate | smallest cosine | norm ratios "
        + ("| smallest cosine in the front " if hybrid else "")
        + "| residual, free and nudged | passes, free + nudged | contraction | norms of kernels "
        "| cosine with backprop | time of a step |",
        "|---" * (12 if hybrid else 11) + "|",
    ]
    for run in found["runs"]:
        for epoch, probe in run["probes"].items():
            proof, ratios = probe["certificate"], probe["timing"]
            sizes = [t["norm_ratio"] for t in proof["tensors"]]
            residuals = ", ".join(f"{p['residual']:.3f}" for p in proof["phases"])
            passes = " + ".join(str(p["steps"]) for p in proof["phases"])
            norms = ", ".join(f"{norm:.2f}" for norm in probe["norms"])
            verdict = "PASS" if proof["ok"] else "FAIL: " + ", ".join(proof["reasons"])
            front = f"| {min(t['cosine'] for t in probe['front']):.4f} " if hybrid else ""
            lines.append(
                f"| {run['seed']} | {epoch} | {verdict} | {proof['min_cosine']:.4f} "
                f"| {min(sizes):.3f} to {max(sizes):.3f} {front}| {residuals} | {passes} "
                f"| {proof['contraction']:.2f} | {norms} | {proof['backprop_cosine']:.3f} "
                f"| {ratios['ep'] / ratios['backprop']:.2f} of backprop's |"
            )
    return lines


def epoch_lines(found: Report) -> list[str]:
    """Loss and accuracy met in training, and the relaxations of EP, by epoch: the first seed's."""
    lines = [
        "| epoch | loss, EP | loss, backprop | training accuracy, EP | backprop "
        "| passes, free + nudged | did not settle |",
        "|---|---|---|---|---|---|---|",
    ]
    by = {run["method"]: run["epochs"] for run in _first(found)}
    if len(by) < 2:
        return lines
    for number, (ep, plain) in enumerate(zip(by["ep"], by["backprop"], strict=True), start=1):
        unsettled = sum(ep["failures"].values())
        lines.append(
            f"| {number} | {ep['loss']:.3f} | {plain['loss']:.3f} | {ep['accuracy']:.1%} "
            f"| {plain['accuracy']:.1%} | {ep['free_steps']:.2f} + {ep['nudged_steps']:.2f} "
            f"| {unsettled} of {ep['relaxations']:,} |"
        )
    return lines


def _first(found: Report) -> list[Report]:
    """The runs of the first seed."""
    return [run for run in found["runs"] if run["seed"] == found["runs"][0]["seed"]]


def check_lines(found: Report) -> list[str]:
    """What the study was to reach, and what it did: the worst of all seeds counts."""
    lines = ["| asked for | measured | |", "|---|---|---|"]
    runs = [run for run in found["runs"] if run["method"] == "ep"]
    if runs:
        least, percent = LEAST[found["network"]], min(accuracies(runs, "ep"))
        minutes = max(run["timing"]["training"] for run in runs) / 60
        probes = [probe for run in runs for probe in run["probes"].values()]
        passed = [probe["certificate"]["ok"] for probe in probes]
        lines += [
            _check(f"at least {least:g} % of the test images from every seed",
                   f"{percent:.2f} %{_worst(runs)}", percent >= least),
            _check("certificates before, amid and after training",
                   f"{sum(passed)} of {len(passed)}", all(passed)),
            _check(f"at most {2 * MOST_MINUTES:g} core-minutes, that is {MOST_MINUTES:g} minutes "
                   "of two cores", f"{minutes:.1f}", minutes <= 2 * MOST_MINUTES),
        ]  # fmt: skip
        handed = [tensor["ok"] for probe in probes for tensor in probe.get("front", ())]
        if handed:
            said = f"{sum(handed)} of {len(handed)} tensors"
            lines.append(_check("the front's gradient is the exact one's", said, all(handed)))
    if found["gaps"]:
        lines.append(_gap_line(found["gaps"]))
    return lines


def _worst(runs: list[Report]) -> str:
    return "" if len(runs) == 1 else f", the worst of {len(runs)} seeds"


def _gap_line(gaps: list[Report]) -> str:
    """EP minus backprop: over seeds where there are several, else over the test images."""
    of, first = summarise([gap["points"] for gap in gaps]), gaps[0]
    worst = min(gap["points"] for gap in gaps)
    if of.n == 1:
        said = f"{of.mean:+.2f} points [{first['low']:+.2f}, {first['high']:+.2f}]"
    else:
        said = (
            f"{of.mean:+.2f} points [{of.low:+.2f}, {of.high:+.2f}] over {of.n} seeds, "
            f"the worst {worst:+.2f}"
        )
    return _check(f"within {MARGIN:g} points of the twin from every seed", said, worst >= -MARGIN)


def _check(asked: str, measured: str, holds: bool) -> str:
    return f"| {asked} | {measured} | {'reached' if holds else '**missed**'} |"


def plan_lines(found: Report) -> list[str]:
    """What the published network would take, from the cost of a step that was measured."""
    residual = found["residual"]
    if residual is None:
        return ["Not measured: `toreqprop cifar` without options does."]
    told, plan, proof = PUBLISHED, planned(residual), residual["certificate"]
    passes = " + ".join(str(p["steps"]) for p in proof["phases"])
    verdict = "PASS" if proof["ok"] else "FAIL: " + ", ".join(proof["reasons"])
    return [
        "| | |", "|---|---|",
        f"| published accuracy, epochs, iterations of a step | {told.accuracy} %, {told.epochs}, "
        f"{told.free_iterations} free + {told.nudged_phases} x {told.nudged_iterations} nudged |",
        f"| products of one pass upwards, an image | {plan['products'] / 1e6:.0f} million |",
        f"| products of their training ({plan['directions']} such passes a step) "
        f"| {plan['theirs']:.1e} |",
        f"| their GPU, if that took {told.hours:g} hours | {plan['rate']:.1e} products a second |",
        f"| backprop at that rate, as many epochs | {plan['backprop_hours']:.2f} hours |",
        f"| EP here over backprop, a step, measured at an eighth of the width | "
        f"{plan['ratio']:.1f} ({passes} passes, certificate {verdict}, feedback "
        f"{residual['feedback']:g}, tolerance {residual['tol']:g}) |",
        f"| **EP here on that GPU** | **{plan['hours']:.1f} hours** |",
        f"| the same on one core of this machine | {plan['cpu_days']:,.0f} days |",
    ]  # fmt: skip


def search_lines(trials: list[Report]) -> list[str]:
    """Every trial on held-out images, in the order they were made."""
    lines = [
        "| network | method | images, epochs | rate, decay | start | feedback, radius, tolerance "
        "| held-out accuracy | last certificate | cosine with backprop | processor time |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for trial in trials:
        own, ep = trial["settings"], trial["method"] == "ep"
        radius = f"{own['radius']:g}" if "radius" in own else "none"
        loop = f"{own['feedback']:g}, {radius}, {own['tol']:g}" if ep else "–"
        proof = beside = "–"
        if "certified" in trial:
            words = "PASS" if trial["certified"] else "FAIL: " + ", ".join(trial["reasons"])
            proof = f"{words} (cosine {trial['cosine']:.3f})"
            beside = f"{trial['backprop_cosine']:.3f}"
        held = (
            f"{trial['held_out']:.1f} %"
            if trial["held_out"] is not None
            else (f"none, stopped after epoch {trial['stopped']}")
        )
        lines.append(
            f"| {_layers(own)} | {trial['method']} | {trial['images']:,}, {own['epochs']} "
            f"| {own['rate']:g}, {own['decay']:g} | {own['start']} | {loop} "
            f"| {held} | {proof} | {beside} | {trial['cpu_seconds']:.0f} s |"
        )
    return lines


def _layers(settings: Report) -> str:
    """Channels of the front, then of the layers that settle, with ``/2`` where one is pooled."""
    windows = settings.get("windows") or [2] * len(settings["channels"])
    both = zip(settings["channels"], windows, strict=True)
    settling = " ".join(f"{width}{'/2' * (window > 1)}" for width, window in both)
    front = " ".join(f"{width}/2" for width in settings.get("front") or ())
    return f"{front} then {settling}" if front else settling


@plain_style()
def curves_figure(found: Report) -> Any:
    """Loss and accuracy met on the way through the training images, by epoch, of the first seed."""
    figure, axes = new_figure(2, width=8.4, height=3.2)
    for ax, name, label, scale in zip(
        axes, ("loss", "accuracy"), ("loss", "accuracy, %"), (1, 100), strict=True
    ):
        for number, run in enumerate(_first(found)):
            values = [scale * epoch[name] for epoch in run["epochs"]]
            ax.plot(
                range(1, len(values) + 1), values, color=CYCLE[number], ls=STYLES[number],
                label=NAMES[run["method"]],
            )  # fmt: skip
        finish(ax, "epoch", f"{label}, flipped training images")
    return figure
