"""The study's tables and picture, from what its file holds; computes nothing new."""

from __future__ import annotations

from typing import Any

from toreqprop.bench.cifar.plan import PUBLISHED, planned
from toreqprop.bench.cifar.study import interval
from toreqprop.plots.style import CYCLE, STYLES, finish, new_figure, plain_style

Report = dict[str, Any]
NAMES = {"ep": "EP, network that settles", "backprop": "backprop, feed-forward twin"}

LEAST, MARGIN, MOST_MINUTES = 75.0, 1.5, 90.0
"""What the study was to reach: percent of the test images, points below the twin at most, minutes
of two cores at most."""


def table_lines(found: Report) -> list[str]:
    """One row for each method."""
    lines = [
        "| method | parameters | training images | epochs | rate | test accuracy, 95 % interval "
        "| processor time |",
        "|---|---|---|---|---|---|---|",
    ]
    for run in found["runs"]:
        low, high = interval(run)
        lines.append(
            f"| {NAMES[run['method']]} | {run['parameters']:,} | {run['training_images']:,} "
            f"| {run['settings']['epochs']} | {run['settings']['rate']:g} "
            f"| {run['accuracy']:.2%} [{low:.1f}, {high:.1f}] "
            f"| {run['timing']['training'] / 60:.1f} min |"
        )
    return lines


def certificate_lines(found: Report) -> list[str]:
    """What EP's gradient was worth at first, in the middle and at the end, and what it took."""
    lines = [
        "| epoch | certificate | smallest cosine | norm ratios | residual, free and nudged "
        "| passes, free + nudged | contraction | norms of kernels | cosine with backprop "
        "| time of a step |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for run in found["runs"]:
        for epoch, probe in run["probes"].items():
            proof, ratios = probe["certificate"], probe["timing"]
            sizes = [t["norm_ratio"] for t in proof["tensors"]]
            residuals = ", ".join(f"{p['residual']:.3f}" for p in proof["phases"])
            passes = " + ".join(str(p["steps"]) for p in proof["phases"])
            norms = ", ".join(f"{norm:.2f}" for norm in probe["norms"])
            verdict = "PASS" if proof["ok"] else "FAIL: " + ", ".join(proof["reasons"])
            lines.append(
                f"| {epoch} | {verdict} | {proof['min_cosine']:.4f} "
                f"| {min(sizes):.3f} to {max(sizes):.3f} | {residuals} | {passes} "
                f"| {proof['contraction']:.2f} | {norms} | {proof['backprop_cosine']:.3f} "
                f"| {ratios['ep'] / ratios['backprop']:.2f} of backprop's |"
            )
    return lines


def epoch_lines(found: Report) -> list[str]:
    """Loss and accuracy met in training, and the relaxations of EP, by epoch."""
    lines = [
        "| epoch | loss, EP | loss, backprop | training accuracy, EP | backprop "
        "| passes, free + nudged | did not settle |",
        "|---|---|---|---|---|---|---|",
    ]
    by = {run["method"]: run["epochs"] for run in found["runs"]}
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


def check_lines(found: Report) -> list[str]:
    """What the study was to reach, and what it did."""
    lines = ["| asked for | measured | |", "|---|---|---|"]
    for run in found["runs"]:
        if run["method"] != "ep":
            continue
        percent, minutes = 100 * run["accuracy"], run["timing"]["training"] / 60
        passed = [p["certificate"]["ok"] for p in run["probes"].values()]
        lines += [
            _check(f"at least {LEAST:g} % of the test images", f"{percent:.2f} %",
                   percent >= LEAST),
            _check("certificates before, amid and after training",
                   f"{sum(passed)} of {len(passed)}", all(passed)),
            _check(f"at most {2 * MOST_MINUTES:g} core-minutes, that is {MOST_MINUTES:g} minutes "
                   "of two cores", f"{minutes:.1f}", minutes <= 2 * MOST_MINUTES),
        ]  # fmt: skip
    if found["gap"] is not None:
        gap = found["gap"]
        said = f"{gap['points']:+.2f} points [{gap['low']:+.2f}, {gap['high']:+.2f}]"
        lines.append(
            _check(f"within {MARGIN:g} points of the twin", said, gap["points"] >= -MARGIN)
        )
    return lines


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
        "| method | images, epochs | rate, decay | start | feedback, radius, tolerance "
        "| held-out accuracy | last certificate | cosine with backprop | processor time |",
        "|---|---|---|---|---|---|---|---|---|",
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
            f"| {trial['method']} | {trial['images']:,}, {own['epochs']} "
            f"| {own['rate']:g}, {own['decay']:g} | {own['start']} | {loop} "
            f"| {held} | {proof} | {beside} | {trial['cpu_seconds']:.0f} s |"
        )
    return lines


@plain_style()
def curves_figure(found: Report) -> Any:
    """Loss and accuracy met on the way through the training images, by epoch."""
    figure, axes = new_figure(2, width=8.4, height=3.2)
    for ax, name, label, scale in zip(
        axes, ("loss", "accuracy"), ("loss", "accuracy, %"), (1, 100), strict=True
    ):
        for number, run in enumerate(found["runs"]):
            values = [scale * epoch[name] for epoch in run["epochs"]]
            ax.plot(
                range(1, len(values) + 1), values, color=CYCLE[number], ls=STYLES[number],
                label=NAMES[run["method"]],
            )  # fmt: skip
        finish(ax, "epoch", f"{label}, flipped training images")
    return figure
